"""The checks of the course's exercises, one module a lesson: `lesson_05.py` holds those named `05/...`."""
