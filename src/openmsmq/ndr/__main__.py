"""`python -m openmsmq.ndr`: bring the generated modules up to date and say where they are."""

from openmsmq import interfaces

if __name__ == "__main__":
    print(interfaces.__path__[-1] if interfaces.directory else "in memory")
