"""How Sphinx makes the site of the pages that `mgpu book` lays out. Nothing here asks the network."""

from importlib import metadata

project = "Multi-GPU training, step by step"
author = "the authors of the course"
release = version = metadata.version("mgpu-utils")
language = "en"
root_doc = "index"

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "mgpu_utils.book.anchors",
    "mgpu_utils.book.cell_colours",
]

# The glossary goes from its title to headings of the third rank, as GitHub shows them best.
suppress_warnings = ["myst.header"]

# `mgpu book` runs the notebooks itself, each with a limit and nothing left behind.
nb_execution_mode = "off"
nb_merge_streams = True
# What stops a cell here is most often an explanation in sentences, and no traceback.
nb_render_error_lexer = "text"
nb_ipywidgets_js = {}
nb_mime_priority_overrides = [("html", "application/vnd.jupyter.widget-view+json", None)]

myst_heading_anchors = 6
# A "$" in these texts is a shell's or a price, and "{" belongs to code.
myst_enable_extensions = ["html_image"]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
# An attribute that is a property, too, would else stand there twice.
napoleon_use_ivar = True
# People look for the words of a message, with its own quotation marks.
smartquotes = False
# Docstrings write `name`, as one does on GitHub.
default_role = "literal"
python_maximum_signature_line_length = 88
add_module_names = False

html_theme = "furo"
# Its own choice underlines the name of a module, as if it were a link.
pygments_dark_style = "github-dark"
html_title = project
html_static_path = ["static"]
html_css_files = ["book.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_theme_options = {"navigation_with_keys": True}
# No page of it is needed: the contents stand at the side, and names in the search.
html_domain_indices = False
html_use_index = False
