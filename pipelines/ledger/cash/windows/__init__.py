"""The history policies of the papers: a page spends its cash when it is visited, and keeps what it earned.

`dividends` holds the cash of a page: opening balance, credits, and its part of what the virtual page pays.
`spending` is a visit, the round for pages that cannot spend by themselves, and the turn clock. `history` turns what was
earned into a rate, over a window or over all time. `window` reads the turn clock; `spending_laws` audits.

There is no residual and no certificate here.
"""
