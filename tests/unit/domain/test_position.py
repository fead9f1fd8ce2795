"""A reader of a journal gets every line once, in whatever order transactions commit."""

import random
from dataclasses import dataclass

from control_plane.domain.position import SEEN_MAX, START, Position, behind, parse, unseen


@dataclass(frozen=True)
class Line:
    number: int
    transaction: int
    settled: int = START


@dataclass
class Database:
    """Transactions that write lines and commit in any order, as PostgreSQL would show them to a statement."""

    chance: random.Random
    next_transaction: int = 1
    next_number: int = 1

    def __post_init__(self) -> None:
        self.open: dict[int, list[int]] = {}
        self.committed: list[Line] = []

    def step(self) -> None:
        match self.chance.randrange(4):
            case 0:
                self.open[self.next_transaction] = []
                self.next_transaction += 1
            case 1 | 2 if self.open:
                self.open[self.chance.choice(list(self.open))].append(self.next_number)
                self.next_number += self.chance.randint(1, 3)
            case 3 if self.open:
                transaction = self.chance.choice(list(self.open))
                self.committed += [Line(number, transaction) for number in self.open.pop(transaction)]

    def page(self, position: Position, limit: int) -> list[Line]:
        """What `db/journal.py` reads."""
        oldest = min(self.open, default=self.next_transaction)
        rows = sorted(
            (line for line in self.committed if line.transaction >= position.horizon),
            key=lambda line: line.number,
        )
        settled = [min([oldest, *(later.transaction for later in rows[at + 1 :])]) for at in range(len(rows))]
        page = [Line(row.number, row.transaction, least) for row, least in zip(rows, settled, strict=True)]
        return page[: limit + len(position.seen)]


def test_every_line_is_read_once_wherever_a_reader_stops_and_resumes() -> None:
    for seed in range(200):
        chance = random.Random(seed)
        database = Database(chance)
        position, got = Position(), list[int]()
        for _ in range(150):
            database.step()
            if chance.random() < 0.3:
                lines = unseen(position, database.page(position, chance.randint(1, 4)))
                for line, after in lines[
                    : chance.randint(0, len(lines))
                ]:  # The client is cut off in between.
                    got.append(line.number)
                    position = after
        while lines := unseen(position, database.page(position, 3)):
            got += [line.number for line, _ in lines]
            position = lines[-1][1]
        assert sorted(got) == sorted(line.number for line in database.committed), seed
        assert len(got) == len(set(got)), seed


def test_readers_at_several_positions_share_a_read_from_the_lowest_horizon() -> None:
    for seed in range(100):
        chance = random.Random(seed)
        database = Database(chance)
        positions: list[Position] = []
        for _ in range(120):
            database.step()
            if chance.random() < 0.05:
                lines = unseen(Position(), database.page(Position(), 1_000))
                positions.append(lines[-1][1] if lines else Position())
        if not positions:
            continue
        lowest = Position(min(position.horizon for position in positions))
        page = database.page(lowest, 1_000)
        for position in positions:
            alone = unseen(position, database.page(position, 1_000))
            shared = unseen(position, page)
            assert [line.number for line, _ in shared] == [line.number for line, _ in alone], seed


def test_a_position_names_no_lines_once_no_transaction_is_open() -> None:
    page = [Line(1, 5, 5), Line(2, 5, 6), Line(3, 6, 9)]
    assert unseen(Position(), page)[-1][1] == Position(9)
    assert unseen(Position(), page)[0][1] == Position(5, (1,))


def test_a_reader_that_has_a_whole_page_comes_behind_it() -> None:
    page = [Line(1, 5, 5), Line(2, 5, 6), Line(3, 6, 9)]
    assert unseen(Position(0, (1, 2, 3)), page) == []
    assert behind(Position(0, (1, 2, 3)), page) == Position(9)
    assert behind(Position(9), []) == Position(9)


def test_a_position_survives_its_text_and_other_texts_are_none() -> None:
    for position in (Position(), Position(7), Position(7, (3,)), Position(-12, (3, 4, 900)), Position(0)):
        assert parse(str(position)) == position
    numbers = tuple(range(10**17, 10**17 + SEEN_MAX))
    assert parse(str(Position(7, numbers))) == Position(7, numbers)
    for text in (
        "",
        "abc",
        "1.",
        ".1",
        "1.-2",
        "--1",
        "9" * 40,
        str(1 << 63),
        str(-(1 << 63) - 1),
        "1.5.x",
        "٣",
        "1" + ".1" * (SEEN_MAX + 1),
    ):
        assert parse(text) is None, text
