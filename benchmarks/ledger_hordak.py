"""A client of django-hordak, which pays money into customers' accounts as `benchmarks.ledger` tells it to.

It runs in an environment of its own, which has Django and nothing of ours (`benchmarks/peer.py`):

    python ledger_hordak.py prepare URL CUSTOMERS    # makes the tables and the accounts
    python ledger_hordak.py serve URL                # posts for as many seconds as each line of the input says
"""

import json
import random
import sys
import time
from decimal import Decimal

import django
from django.apps import apps
from django.conf import settings
from django.core.management import call_command
from moneyed import Money
from psycopg.conninfo import conninfo_to_dict

CURRENCY = "USD"
CASH = "0"
"""The code of the account that all money comes into."""


def _connect(url: str) -> None:
    place = conninfo_to_dict(url)
    database = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": place["dbname"],
        "USER": place["user"],
        "HOST": place["host"],
        "CONN_MAX_AGE": None,  # It keeps its connection.
    }
    settings.configure(
        INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "mptt", "hordak"],
        DATABASES={"default": database},
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        DEFAULT_CURRENCY=CURRENCY,
        CURRENCIES=[CURRENCY],
        HORDAK_INTERNAL_CURRENCY=CURRENCY,
        USE_TZ=True,
    )
    django.setup()


def _prepare(customers: int) -> None:
    call_command("migrate", verbosity=0)
    account = apps.get_model("hordak", "Account")
    account.objects.create(name="cash", code=CASH, type="AS", currencies=[CURRENCY])
    for number in range(1, customers + 1):
        account.objects.create(name=f"c{number}", code=str(number), type="LI", currencies=[CURRENCY])


def _serve() -> None:
    account = apps.get_model("hordak", "Account")
    cash = account.objects.get(code=CASH)
    customers = list(account.objects.exclude(code=CASH))
    amount = Money(Decimal("1.00"), CURRENCY)
    random.choice(customers).transfer_to(cash, amount)
    print("ready", flush=True)
    for line in sys.stdin:
        posted, begun = 0, time.perf_counter()
        until = begun + float(line)
        while time.perf_counter() < until:
            random.choice(customers).transfer_to(cash, amount)
            posted += 1
        print(json.dumps({"posted": posted, "seconds": time.perf_counter() - begun}), flush=True)


def main() -> None:
    what, url = sys.argv[1:3]
    _connect(url)
    if what == "prepare":
        _prepare(int(sys.argv[3]))
    else:
        _serve()


if __name__ == "__main__":
    main()
