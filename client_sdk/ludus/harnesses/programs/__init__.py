"""One module for each agent program: its packages, its configuration for an episode, and the meaning of its end.

aider.py           aider, by the bridge
claude_code.py     Anthropic's Claude Code
cline.py           Cline
codex.py           OpenAI's Codex CLI
continue_cli.py    Continue
copilot.py         GitHub's Copilot CLI
gemini_cli.py      Google's Gemini CLI
hermes.py          Nous Research's Hermes Agent
mini_swe_agent.py  mini-swe-agent, by the bridge
opencode.py        OpenCode
openhands.py       the OpenHands SDK
pi.py              Pi
qwen_code.py       Alibaba's Qwen Code
"""
