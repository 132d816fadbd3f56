"""`python -m openmsmq`: the command line, as `openmsmq`."""

from openmsmq.cli import main

if __name__ == "__main__":
    main()
