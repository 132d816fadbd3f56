"""`python -m openmsmq.cli`"""

from openmsmq.cli import main

if __name__ == "__main__":
    main()
