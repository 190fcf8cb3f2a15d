"""Ages, from dates and from age groups."""

from __future__ import annotations

import re
from datetime import date, datetime

import numpy as np
from numpy.typing import NDArray

from higsfa.datasets._reader_tables import Table
from higsfa.datasets._reader_values import number

DATE_FORMATS = ("%Y-%m-%d", "%Y/%m/%d", "%Y%m%d", "%m/%d/%Y", "%d/%m/%Y", "%m-%d-%Y", "%d.%m.%Y", "%m/%d/%y")


def morph_ages(table: Table) -> NDArray[np.float64]:
    column = table.column("age")
    born = table.column("dob", "date_of_birth", "birth_date", "birthdate")
    taken = table.column("doa", "date_of_acquisition", "date_of_arrest", "photo_date", "acquisition_date")
    if column is None and (born is None or taken is None):
        raise ValueError(f"{table.path}: no column 'age', and not both of 'dob' and 'doa', among {table.header}")
    ages = np.full(len(table.rows), np.nan) if column is None else np.array([number(text) for text in column])
    if born is None or taken is None:
        return ages
    (starts, form), (ends, _) = _dates(born, taken)
    for i, (start, end) in enumerate(zip(starts, ends, strict=True)):
        if start is None or end is None or not 1900 <= start.year <= 2100 or not 1900 <= end.year <= 2100:
            continue
        if start > end and form.endswith("%y"):  # a year of two digits is read as one from 1969 to 2068
            start = _birthday(start, start.year - 100)
        exact = _years(start, end)
        agrees = np.isnan(ages[i]) or abs(np.floor(exact) - ages[i]) <= 1
        if 0 <= exact <= 120 and agrees:
            ages[i] = exact
    return ages


def middle_of_group(text: str, table: Table, row: int) -> float:
    """The middle of an age group such as "20-29"; five years into one such as "more than 70"."""
    if text == "":
        return float("nan")
    numbers = [int(digits) for digits in re.findall(r"\d{1,3}", text)]
    if len(numbers) == 2 and numbers[0] <= numbers[1]:
        return sum(numbers) / 2
    if len(numbers) == 1:
        open_ended = re.search(r"more|over|above|older|\+", text.lower())
        return numbers[0] + 5.0 if open_ended else float(numbers[0])
    raise ValueError(
        f"{table.path}, line {table.lines[row]}: age {text!r} is no age group such as '20-29' or 'more than 70'"
    )


def _dates(*columns: list[str]) -> list[tuple[list[date | None], str]]:
    """The dates of each column, and the format that fits most of it; the same for all, so that 3/4/1970 is read as
    13/4/1970 is.

    Where several formats fit a column alike, the one that fits most of the other columns is taken. If days and months
    still fit both ways the month comes first, as in the United States.
    """
    texts = [[re.split(r"[ T]", text)[0] for text in column] for column in columns]
    read: dict[str, list[dict[str, date]]] = {}
    for form in DATE_FORMATS:
        read[form] = [{text: day for text in set(column) if (day := _date(text, form))} for column in texts]
        if all(len(found) == len(set(column) - {""}) for found, column in zip(read[form], texts, strict=True)):
            break

    def best(i: int) -> str:
        return max(read, key=lambda form: (len(read[form][i]), sum(map(len, read[form]))))

    chosen = [best(i) for i in range(len(columns))]
    return [([read[form][i].get(text) for text in texts[i]], form) for i, form in enumerate(chosen)]


def _date(text: str, form: str) -> date | None:
    try:
        return datetime.strptime(text, form).date()
    except ValueError:
        return None


def _years(born: date, taken: date) -> float:
    """Age whose integer part is the number of birthdays."""
    birthday, following = _birthday(born, taken.year), _birthday(born, taken.year + 1)
    if birthday > taken:
        birthday, following = _birthday(born, taken.year - 1), birthday
    return birthday.year - born.year + (taken - birthday).days / (following - birthday).days


def _birthday(born: date, year: int) -> date:
    try:
        return born.replace(year=year)
    except ValueError:  # born on the 29th of February
        return date(year, 3, 1)
