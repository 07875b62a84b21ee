from core.block_table import BlockTable


def test_a_new_table_is_empty():
    table = BlockTable()
    assert len(table) == 0
    assert table.view().tolist() == []
    assert table.clear() == []


def test_a_table_grows_and_keeps_its_order():
    table = BlockTable()
    for block_id in range(100):
        table.append(block_id * 3)
    assert len(table) == 100
    assert table.view().tolist() == [block_id * 3 for block_id in range(100)]


def test_replace_returns_the_old_block():
    table = BlockTable()
    for block_id in (5, 6, 7):
        table.append(block_id)
    assert table.replace(1, 9) == 6
    assert table.view().tolist() == [5, 9, 7]


def test_clear_returns_all_blocks_as_integers_and_empties_the_table():
    table = BlockTable()
    for block_id in (5, 6, 7):
        table.append(block_id)
    block_ids = table.clear()
    assert block_ids == [5, 6, 7]
    assert all(type(block_id) is int for block_id in block_ids)
    table.append(8)
    assert table.view().tolist() == [8]
