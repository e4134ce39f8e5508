"""Who sends a request, which names are allowed, and which packages an account may see or change.

viewers.py      who sends a request, and what they may do
rights.py       the rights of owners, maintainers and readers; visibility.py: which packages a viewer sees
names.py        the names of owners and packages
"""
