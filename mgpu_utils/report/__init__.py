"""Make one page of any number of result folders, and say what changed between two; `mgpu report` is the way in.

`folders` finds and reads results, `views` turns one into tables and figures, `comparison` sets folders side by side,
`reference` adds published numbers, `page` writes HTML and CSV, `baseline` judges a new result beside an old one.
"""
