"""Orders are found by how any part of their references begins."""

from alembic import op

from orders.store.care import triggers
from orders.store.tables import WordRow

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Write the words of the orders that there are, and have triggers do so from now on."""
    connection = op.get_bind()
    WordRow.create(connection)
    words = triggers.words_of(connection.dialect.name, "orders")
    connection.exec_driver_sql(f"INSERT INTO order_words (word, order_id) {words}")
    triggers.write_words(connection)
