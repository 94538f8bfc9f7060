"""The documentation site, which ``make docs`` builds from the Markdown of the repository; it works offline.

``docs/`` is written for a reader of the repository, too: pages link to each other, to data cards and to source files by
their paths. The root of the sources is therefore the repository.
"""

import re
import sys
from pathlib import Path

from pygments.lexers.special import TextLexer

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

project = "usvit"
author = "the usvit authors"
version = release = re.search(r'__version__ = "(.*?)"', (REPOSITORY / "usvit" / "__init__.py").read_text())[1]
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_design", "sphinx_copybutton"]

root_doc = "site/index"
source_suffix = {".md": "markdown"}
include_patterns = ["site/*.md", "docs/**", "data_cards/*.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4

autodoc_typehints = "signature"
python_use_unqualified_type_names = True
# The site documents the functions of the package. The types in their signatures are of other packages, whose indices
# are not read, because nothing touches the network, or are records and settings, which have pages of their own.
nitpick_ignore_regex = [("py:.*", ".*")]

html_theme = "pydata_sphinx_theme"
templates_path = ["templates"]
html_title = f"usvit {version}"
html_extra_path = [one for one in ("extra", "../build/site-extra") if (REPOSITORY / "site" / one).is_dir()]
html_show_sourcelink = False
html_theme_options = {
    "show_toc_level": 2,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "header_links_before_dropdown": 6,
}
html_context = {"default_mode": "auto"}
copyright = "the usvit authors. For research use, not a medical device"


def setup(app):
    """Show diagrams as their text: a renderer would need JavaScript from elsewhere."""
    app.add_lexer("mermaid", TextLexer)
