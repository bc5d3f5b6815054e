"""The history policy `certified`: pages pay along the links that they have now, and all totals prove a certificate.

`payments` keeps the law of every page, `visits` begins, changes and ends payments, `residuals` pushes on what waits and
gives the certificate, `importance_window` keeps the mean of importance over the last days, `payment_laws` audits.

There is no virtual page, no dividend, no round, no opening balance and no history here.
"""
