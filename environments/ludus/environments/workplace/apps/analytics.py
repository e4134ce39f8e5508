"""Analytics: monthly figures, added up by groups."""

from __future__ import annotations

from typing import Final, Literal

from ludus.environments.workplace.apps.desk import App, Page, Short, listed
from ludus.server import ToolError, tool

_COLUMNS: Final = {
    "sales": (("month", "region", "product"), ("units", "revenue")),
    "support": (("month", "product"), ("opened", "closed", "hours")),
    "traffic": (("month", "channel"), ("visits", "signups")),
}
"""The columns of each table to filter and group by, and those with figures."""
_UNITS: Final = {"revenue": "thousand euros"}


class AnalyticsApp(App):
    """Read monthly figures of sales, support and the web site."""

    @tool
    def analytics_describe(self, table: Literal["sales", "support", "traffic"]) -> str:
        """Show the columns of a table of monthly figures, and the values of those that you can filter by.

        Args:
            table: the table.
        """
        keys, figures = _COLUMNS[table]
        lines = []
        for key in keys:
            values = [row[key] for row in self.desk.store.rows(f"SELECT DISTINCT {key} FROM {table} ORDER BY {key}")]
            lines.append(f"{key}: {', '.join(values)}")
        return "\n".join([*lines, f"figures: {', '.join(figures)} (revenue is in thousands of euros)"])

    @tool
    def analytics_sum(
        self,
        table: Literal["sales", "support", "traffic"],
        figure: Short,
        group_by: Short = "",
        first_month: Short = "",
        last_month: Short = "",
        region: Short = "",
        product: Short = "",
        channel: Short = "",
        page: Page = 1,
    ) -> str:
        """Add up a figure over months, and over groups, the largest sum first.

        Args:
            table: the table.
            figure: the figure, such as revenue; analytics_describe lists them.
            group_by: a column to group by, such as month; empty for one sum.
            first_month: the first month, as YYYY-MM; empty for all.
            last_month: the last month, as YYYY-MM; empty for all.
            region: only this region (table sales).
            product: only this product (tables sales and support).
            channel: only this channel (table traffic).
            page: the page, from 1; ten groups each.
        """
        keys, figures = _COLUMNS[table]
        column = figure.strip().lower()
        if column not in figures:
            raise ToolError(f"{table} has the figures {', '.join(figures)}, not {figure[:40]!r}.")
        group = group_by.strip().lower()
        if group and group not in keys:
            raise ToolError(f"{table} can be grouped by {', '.join(keys)}, not {group_by[:40]!r}.")
        conditions, values = ["1"], []
        for name, operator, value in (
            ("month", ">=", first_month),
            ("month", "<=", last_month),
            ("region", "=", region),
            ("product", "=", product),
            ("channel", "=", channel),
        ):
            if not value.strip():
                continue
            if name not in keys:
                raise ToolError(f"{table} has no {name}; it has {', '.join(keys)}.")
            conditions.append(f"{name} {operator} ? COLLATE NOCASE")
            values.append(value.strip())
        where = " AND ".join(conditions)
        unit = _UNITS.get(column, column)
        if not group:
            row = self.desk.store.rows(
                f"SELECT COUNT(*) AS count, SUM({column}) AS total FROM {table} WHERE {where}", *values
            )[0]
            return f"{column}: {row['total']} {unit} in {row['count']} rows." if row["count"] else "No rows match."
        rows = self.desk.store.rows(
            f"SELECT {group} AS name, SUM({column}) AS total FROM {table} WHERE {where} GROUP BY {group} "
            f"ORDER BY total DESC, name", *values,
        )  # fmt: skip
        return listed(rows, page, "{name} | {total} " + unit, "No rows match.")
