"""Lets ``python -m fairlead`` be the command ``fairlead``."""

from fairlead.cli.main import main

main()
