"""What an operator can do, as one table: docs/adding-an-action.md. Commands, HTTP operations and their documents follow
from it."""
