"""One test for each statement that Fila, Firq and lockd make about themselves.

A test is named after its statement: ``test_017_…`` is about the seventeenth. Its docstring says what Fairlane does, and
``tests/kit/statements.py`` makes docs/coming-from/statements.md of them.
"""
