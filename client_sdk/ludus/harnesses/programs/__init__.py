"""One module for each agent program: its packages, its configuration for an episode, and the meaning of its end.

claude_code.py  Anthropic's Claude Code
opencode.py     OpenCode
pi.py           Pi
codex.py        OpenAI's Codex CLI
"""
