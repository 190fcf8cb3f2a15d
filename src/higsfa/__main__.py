"""``python -m higsfa`` is the command ``higsfa``."""

from higsfa.cli import main

main()
