"""The site of a hub: server-rendered pages that work without JavaScript.

mounting.py          the routes, and error pages in place of JSON for browsers
rendering.py         templates, static files, and the headers of every page
site.py              what all pages share
visitors.py          who looks at a page: cookies, sign-in with a token, protection of forms
markdown.py          cards as safe HTML
catalog_pages.py     the catalog and its filters
environment_pages.py one environment; usage.py: how to use it; differences.py: what changed between versions
play_pages.py        an episode played by hand; plays.py: the episodes in progress; forms.py: forms of tools' schemas
rollout_pages.py     trajectories of a file; rollouts.py: the kept files; conversations.py: one episode, turn by turn
board_pages.py       boards, runs and the log of removals; charts.py: their bars
sign_in_pages.py     sign-in and registration; openid_pages.py: through an OpenID provider
account_pages.py     an account, its tokens and its log; organization_pages.py: organizations
"""
