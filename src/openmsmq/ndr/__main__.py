"""`python -m openmsmq.ndr`: bring the generated modules up to date and say where they are."""

from pathlib import Path

from openmsmq import interfaces
from openmsmq.ndr.build import write_all

if __name__ == "__main__":
    directory = Path(interfaces.__path__[0])
    write_all(directory)
    print(directory)
