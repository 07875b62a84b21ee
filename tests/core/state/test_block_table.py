from core.state.block_table import BlockTable


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


def table_of(*block_ids):
    table = BlockTable()
    for block_id in block_ids:
        table.append(block_id)
    return table


def test_released_entries_repeat_the_first_held_block():
    table = table_of(5, 6, 7, 8)
    assert table.release(2) == [5, 6]
    assert table.release(1) == []
    assert table.view().tolist() == [7, 7, 7, 8]
    assert table.held() == [7, 8]
    assert table.release(3) == [7]
    assert table.view().tolist() == [8, 8, 8, 8]
    assert table.clear() == [8]
    assert table.num_released == len(table) == 0


def test_a_release_beyond_the_end_extends_the_table():
    table = table_of(5, 6)
    assert table.release(20) == [5, 6]
    assert len(table) == table.num_released == 20
    assert table.held() == []
    table.append(9)
    assert table.view().tolist() == [9] * 21
    assert table.held() == [9]


def test_truncate_returns_what_it_removes():
    table = table_of(5, 6, 7, 8)
    table.release(1)
    assert table.truncate(2) == [7, 8]
    assert table.view().tolist() == [6, 6]
    assert table.truncate(2) == []
