"""``usvit docs``: show the documentation that ships with usvit."""

from typing import Annotated

import typer


def docs(
    page: Annotated[
        str | None, typer.Argument(help="Name of a page, such as score. (default: list the pages)", metavar="PAGE")
    ] = None,
) -> None:
    """Show a page of the documentation, or list the pages."""
    from usvit.files import read_text
    from usvit.resources import docs_dir, documentation_page

    if page is not None:
        from rich.console import Console
        from rich.markdown import Markdown

        text = read_text(documentation_page(page))
        console = Console()
        print(text) if not console.is_terminal else console.print(Markdown(text))
        return
    for path in sorted(docs_dir().rglob("*.md")):
        title = read_text(path).partition("\n")[0].removeprefix("# ")
        print(f"{path.stem:22}{title}")
