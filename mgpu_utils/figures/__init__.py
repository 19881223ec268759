"""The figures of the course by topic; `mgpu_utils.plots` gathers them under one name."""
