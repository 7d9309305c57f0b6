"""The commands ``chargeback issue``, ``verify`` and ``show``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.chargeback.usage_tables import Books, usage, write_usage
from tests.unit.cli.shell import Shell

FIRST, SECOND, THIRD = "2026-03-01", "2026-03-02", "2026-03-03"


@pytest.fixture
def books(tmp_path: Path) -> Books:
    """Return tables of three days, and a price book."""
    books = Books(tmp_path)
    write_usage(
        books.tables,
        {
            FIRST: [usage("acme", cost_true=500), usage("beta", cost_true=10)],
            SECOND: [usage("acme", cost_true=20, is_complete=False)],
            THIRD: [usage("acme", cost_true=1)],
        },
    )
    return books


def options(books: Books) -> list[str]:
    """Return the options that name tables, prices and statements."""
    return [
        *("--tables", str(books.tables), "--prices", str(books.prices)),
        *("--statements", str(books.statements)),
    ]


def test_a_statement_is_issued_once(shell: Shell, books: Books) -> None:
    """The first call tells the statement and the days that it leaves out, the second that there is nothing to do."""
    held = [
        "Held back: 2026-03-03, the newest day; --include-newest includes it.",
        "Held back: 2026-03-02, a part of the journal is missing; --include-incomplete includes it.",
    ]
    done = shell.ok("chargeback", "issue", *options(books))
    folder = books.statements / "statement-000001"
    assert done.out.splitlines() == [
        f"Statement 1: 2 lines and 0 corrections for {FIRST}, 1.02 EUR, in {folder}.",
        *held,
    ]
    again = shell.ok("chargeback", "issue", *options(books))
    assert again.out.splitlines() == ["Nothing to issue: the statements are up to date.", *held]


def test_all_days_on_request(shell: Shell, books: Books) -> None:
    """With both options the newest day and the incomplete one are issued as well."""
    done = shell.ok("chargeback", "issue", *options(books), "--include-newest", "--include-incomplete")
    assert done.out.startswith(f"Statement 1: 4 lines and 0 corrections for {FIRST} to {THIRD}, 1.062 EUR, in ")
    assert len(done.out.splitlines()) == 1


def test_an_issue_as_json(shell: Shell, books: Books) -> None:
    """Programs get the facts of the statement, with amounts as texts that lose nothing."""
    done = shell.ok("-o", "json", "chargeback", "issue", *options(books), "--to", FIRST).json
    statement = done["statement"]
    assert (statement["number"], statement["lines"], statement["billed"], statement["days"]) == (1, 2, "1.020", [FIRST])
    assert (done["held"], done["missing_days"]) == ([], [])
    assert shell.ok("-o", "json", "chargeback", "issue", *options(books), "--to", FIRST).json["statement"] is None


def test_verify_finds_late_data(shell: Shell, books: Books) -> None:
    """Statements that agree exit with 0; late data exits with 1 and is named, until it is issued."""
    shell.ok("chargeback", "issue", *options(books))
    assert "the statements agree with the tables" in shell.ok("chargeback", "verify", *options(books)).out
    write_usage(books.tables, {FIRST: [usage("acme", cost_true=600), usage("beta", cost_true=10)]})
    found = shell.run("chargeback", "verify", *options(books))
    assert found.code == 1
    assert "1 difference; 'fairlane chargeback issue' issues corrections" in found.out
    assert found.out.splitlines()[-1].split() == [FIRST, "acme", "orders", "cost", "1", "1.2"]
    shell.ok("chargeback", "issue", *options(books))
    assert shell.ok("-o", "json", "chargeback", "verify", *options(books)).json["mismatches"] == []


def test_verify_finds_damage_and_missing_days(shell: Shell, books: Books) -> None:
    """A file that was changed, and a day that left the tables, exit with 1 and are named."""
    shell.ok("chargeback", "issue", *options(books))
    write_usage(books.tables, {FIRST: []})
    gone = shell.run("chargeback", "verify", *options(books))
    assert (gone.code, "issued days are not in the tables" in gone.out) == (1, True)
    (books.statements / "statement-000001" / "lines.csv").write_text("")
    damaged = shell.run("chargeback", "verify", *options(books))
    assert (damaged.code, "statement-000001/lines.csv" in damaged.out) == (1, True)


def test_show_tells_the_bill_of_each_tenant(shell: Shell, books: Books) -> None:
    """The amounts of a month by tenant, for all or for one."""
    shell.ok("chargeback", "issue", *options(books))
    lines = shell.ok("chargeback", "show", "--statements", str(books.statements)).out.splitlines()
    assert [line.split() for line in lines[1:]] == [
        ["2026-03", "acme", "1", "1", "EUR"],
        ["2026-03", "beta", "0.02", "0.02", "EUR"],
    ]
    one = shell.ok("-o", "json", "chargeback", "show", "--statements", str(books.statements), "--tenant", "beta")
    assert [(bill["month"], bill["tenant"]) for bill in one.json] == [(FIRST, "beta")]


def test_a_wrong_price_book_is_named(shell: Shell, books: Books) -> None:
    """The error says which field of which file is wrong, and nothing is issued."""
    books.prices.write_text('currency = "EUR"\nprices = [{mesage = 1}]\n')
    refused = shell.run("-o", "json", "chargeback", "issue", *options(books))
    assert refused.code == 1
    assert refused.error["code"] == "invalid_argument"
    assert f"Invalid price book {books.prices}: Object contains unknown field `mesage`" in refused.error["cause"]
    assert not books.statements.exists()


def test_pipeline_verify_wants_both_options(shell: Shell, books: Books) -> None:
    """Statements without a price book are a usage error, before Spark starts."""
    refused = shell.run("pipeline", "verify", "--tables", str(books.tables), "--statements", str(books.statements))
    assert (refused.code, "--statements and --prices belong together" in refused.err) == (2, True)
