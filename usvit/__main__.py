"""``python -m usvit``."""

from usvit.cli import main

if __name__ == "__main__":
    main()
