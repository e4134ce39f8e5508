"""Chat templates in the styles of models whose own ones are not in TRL, and tokenizers with a template's marks."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

_MARKS: Final = re.compile(
    r"<\|[^|>\s]{1,40}\|?>|<[^|>\s]{1,40}\|>|<｜[^｜\s]{1,40}｜>|<\|\"\|>|</?(?:think|tool_call|tool_response|bos|s|eos"
    r"|start_of_turn|end_of_turn|sop|minimax:tool_call|end_of_utterance)>|\[/?[A-Z]{3,}(?:_[A-Z]+)*\]|\[gMASK\]"
    r"|\]~!?b\[?\]?|\[e~\["
)
_ALWAYS: Final = ("<bos>", "<eos>", "</s>", "<|return|>", "<|call|>", "<|tool_call_start|>", "<|tool_call_end|>")


def byte_tokenizer(source: str, marks: Iterable[str] = (), eos: str = "<eos>") -> Any:
    """A tokenizer of bytes, in which the marks of a template are special tokens."""
    core = Tokenizer(
        models.BPE(vocab={c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}, merges=[])
    )
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    tokens = sorted({*_MARKS.findall(source), *_ALWAYS, *marks, eos})
    core.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in tokens])
    return PreTrainedTokenizerFast(tokenizer_object=core, bos_token="<bos>", eos_token=eos, chat_template=source)


_TOOLS: Final = (
    "{%- if tools %}{{ SYSTEM }}{%- for tool in tools %}{{ tool | tojson }}{{ '\\n' }}{%- endfor %}{{ END }}"
    "{%- endif %}"
)


def _tools(system: str, end: str) -> str:
    return _TOOLS.replace("SYSTEM", repr(system)).replace("END", repr(end))


QWEN3_CODER: Final = (
    "{%- if messages[0].role == 'system' %}"
    "{{ '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}{%- endif %}"
    + _tools("<|im_start|>system\n# Tools\n", "Write <tool_call>\n<function=NAME>\n<parameter=KEY>…<|im_end|>\n")
    + """
{%- for message in messages %}
    {%- if message.role == "assistant" and message.tool_calls %}
        {{- '<|im_start|>assistant' }}
        {%- if message.content is string and message.content | trim | length > 0 %}
            {{- '\\n' + message.content | trim + '\\n' }}
        {%- endif %}
        {%- for tool_call in message.tool_calls %}
            {{- '\\n<tool_call>\\n<function=' + tool_call.function.name + '>\\n' }}
            {%- for key, value in tool_call.function.arguments | items %}
                {{- '<parameter=' + key + '>\\n' + (value if value is string else value | tojson) }}
                {{- '\\n</parameter>\\n' }}
            {%- endfor %}
            {{- '</function>\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.previtem and loop.previtem.role != "tool" %}{{- '<|im_start|>user\\n' }}{%- endif %}
        {{- '<tool_response>\\n' + message.content + '\\n</tool_response>\\n' }}
        {%- if loop.last or loop.nextitem.role != "tool" %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- elif message.role != 'system' %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"""
)

KIMI: Final = (
    _tools("<|im_system|>tool_declare<|im_middle|>", "<|im_end|>")
    + """
{%- for message in messages %}
    {%- if message.role == 'user' %}{{- '<|im_user|>user<|im_middle|>' }}
    {%- elif message.role == 'assistant' %}{{- '<|im_assistant|>assistant<|im_middle|>' }}
    {%- elif message.role == 'tool' %}{{- '<|im_system|>' + (message.name or 'tool') + '<|im_middle|>' }}
    {%- else %}{{- '<|im_system|>system<|im_middle|>' }}
    {%- endif %}
    {%- if message.role == 'assistant' and message.get('tool_calls') %}
        {{- message.content or '' }}
        {{- '<|tool_calls_section_begin|>' }}
        {%- for tool_call in message.tool_calls %}
            {{- '<|tool_call_begin|>' + tool_call.id + '<|tool_call_argument_begin|>' }}
            {{- tool_call.function.arguments | tojson + '<|tool_call_end|>' }}
        {%- endfor %}
        {{- '<|tool_calls_section_end|>' }}
    {%- elif message.role == 'tool' %}
        {{- '## Return of ' + message.tool_call_id + '\\n' + message.content }}
    {%- else %}
        {{- message.content }}
    {%- endif %}
    {{- '<|im_end|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_assistant|>assistant<|im_middle|>' }}{%- endif %}"""
)

_MISTRAL: Final = """
{{- bos_token }}
{%- if messages[0].role == 'system' %}{% set system = messages[0].content %}{% set messages = messages[1:] %}{% endif %}
{%- set ns = namespace(index=0) %}
{%- for message in messages %}
    {%- if not (message.role == 'tool' or (message.role == 'assistant' and message.tool_calls is defined)) %}
        {%- if (message.role == 'user') != (ns.index % 2 == 0) %}
            {{- raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{%- if tools %}{{- '[AVAILABLE_TOOLS]' + tools | tojson + '[/AVAILABLE_TOOLS]' }}{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'user' %}
        {{- '[INST]' + (system + '\\n\\n' if loop.first and system is defined else '') + message.content + '[/INST]' }}
    {%- elif message.role == 'assistant' and message.tool_calls is defined %}
        CALLS
        {{- eos_token }}
    {%- elif message.role == 'assistant' %}
        {{- message.content + eos_token }}
    {%- elif message.role == 'tool' %}
        RESULT
    {%- endif %}
{%- endfor %}"""
_CHECKED_ID: Final = (
    "{%- if ID | length != 9 %}{{- raise_exception('Tool call IDs should be alphanumeric strings with length 9!') }}"
    "{%- endif %}"
)
MISTRAL: Final = _MISTRAL.replace(
    "CALLS",
    "{{- '[TOOL_CALLS][' }}{%- for call in message.tool_calls %}"
    + _CHECKED_ID.replace("ID ", "call.id ", 1)
    + """{{- '{"name": "' + call.function.name + '", "arguments": ' }}"""
    """{{- call.function.arguments | tojson + ', "id": "' }}"""
    """{{- call.id + '"}' + (', ' if not loop.last else ']') }}{%- endfor %}""",
).replace(
    "RESULT",
    """{{- '[TOOL_RESULTS]{"content": ' + message.content | tojson + ', "call_id": "' + message.tool_call_id }}"""
    """{{- '"}[/TOOL_RESULTS]' }}""",
)
MISTRAL_V11: Final = _MISTRAL.replace(
    "CALLS",
    "{{- message.content }}{%- for call in message.tool_calls %}"
    + _CHECKED_ID.replace("ID ", "call.id ", 1)
    + "{{- '[TOOL_CALLS]' + call.function.name + '[CALL_ID]' + call.id + '[ARGS]' }}"
    "{{- call.function.arguments | tojson }}{%- endfor %}",
).replace(
    "RESULT", "{{- '[TOOL_RESULTS]' + message.tool_call_id + '[TOOL_CONTENT]' + message.content + '[/TOOL_RESULTS]' }}"
)

_DEEPSEEK: Final = """
{{- bos_token }}
{%- for message in messages %}{%- if message.role == 'system' %}{{- message.content }}{%- endif %}{%- endfor %}
{%- if tools %}{{- '\\n\\n## Tools\\n' + tools | tojson + 'SHOWN' }}{%- endif %}
{%- set ns = namespace(last='') %}
{%- for message in messages %}
    {%- if message.role == 'user' %}{{- '<｜User｜>' + message.content }}
    {%- elif message.role == 'assistant' %}
        {%- if ns.last == 'user' %}{{- '<｜Assistant｜>THINK' }}{%- endif %}
        {{- message.content or '' }}
        {%- if message.tool_calls is defined %}
            {{- '<｜tool▁calls▁begin｜>' }}
            {%- for call in message.tool_calls %}CALL{%- endfor %}
            {{- '<｜tool▁calls▁end｜>' }}
        {%- endif %}
        {{- '<｜end▁of▁sentence｜>' }}
    {%- elif message.role == 'tool' %}{{- '<｜tool▁output▁begin｜>' + message.content + '<｜tool▁output▁end｜>' }}
    {%- endif %}
    {%- set ns.last = message.role %}
{%- endfor %}
{%- if add_generation_prompt and ns.last == 'user' %}{{- '<｜Assistant｜>THINK' }}{%- endif %}"""
DEEPSEEK: Final = (
    _DEEPSEEK.replace("THINK", "")
    .replace("SHOWN", "Write function<｜tool▁sep｜>NAME and a block of JSON.")
    .replace(
        "CALL{%",
        """{{- ('\\n' if not loop.first else '') + '<｜tool▁call▁begin｜>' + call.type + '<｜tool▁sep｜>' }}"""
        """{{- call.function.name + '\\n```json\\n' + call.function.arguments + '\\n```<｜tool▁call▁end｜>' }}{%""",
    )
)
DEEPSEEK_V31: Final = (
    _DEEPSEEK.replace("THINK", "</think>")
    .replace("SHOWN", "Write <｜tool▁call▁begin｜>NAME<｜tool▁sep｜>ARGUMENTS<｜tool▁call▁end｜>.")
    .replace(
        "CALL{%",
        """{{- '<｜tool▁call▁begin｜>' + call.function.name + '<｜tool▁sep｜>' + call.function.arguments | tojson }}"""
        """{{- '<｜tool▁call▁end｜>' }}{%""",
    )
)

MINIMAX: Final = (
    "{%- if messages[0].role == 'system' %}{{ ']~b]system\\n' + messages[0].content + '[e~[\\n' }}{%- endif %}"
    + _tools("]~b]system\n<tools>", "Write <minimax:tool_call> with <invoke>.[e~[\n")
    + """
{%- for message in messages %}
    {%- if message.role == 'user' %}{{- ']~b]user\\n' + message.content + '[e~[\\n' }}
    {%- elif message.role == 'assistant' %}
        {{- ']~b]ai\\n<think>\\n' }}
        {%- if message.reasoning_content %}{{- message.reasoning_content }}
        {%- elif '</think>' in message.content %}
            {{- message.content.split('</think>')[0].split('<think>')[-1].strip('\\n') }}
        {%- endif %}
        {{- '\\n</think>\\n\\n' + message.content.split('</think>')[-1].strip('\\n') }}
        {%- if message.tool_calls %}
            {{- '\\n<minimax:tool_call>\\n' }}
            {%- for call in message.tool_calls %}
                {{- '<invoke name="' + call.function.name + '">\\n' }}
                {%- for key, value in call.function.arguments.items() %}
                    {{- '<parameter name="' + key + '">' + (value if value is string else value | tojson) }}
                    {{- '</parameter>\\n' }}
                {%- endfor %}
                {{- '</invoke>\\n' }}
            {%- endfor %}
            {{- '</minimax:tool_call>' }}
        {%- endif %}
        {{- '[e~[\\n' }}
    {%- elif message.role == 'tool' %}
        {%- if loop.previtem.role != 'tool' %}{{- ']~b]tool' }}{%- endif %}
        {{- '\\n<response>' + message.content + '</response>' }}
        {%- if loop.last or loop.nextitem.role != 'tool' %}{{- '[e~[\\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- ']~b]ai\\n<think>\\n' }}{%- endif %}"""
)

COMMAND: Final = (
    _tools("<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|># Available Tools\n", "<|END_OF_TURN_TOKEN|>")
    + """
{%- set ns = namespace(results=0) %}
{%- for message in messages %}
    {%- if message.role in ('system', 'user') %}
        {{- '<|START_OF_TURN_TOKEN|><|' + message.role | upper + '_TOKEN|>' }}
        {{- message.content + '<|END_OF_TURN_TOKEN|>' }}
    {%- elif message.role == 'assistant' %}
        {{- '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' }}
        {%- if message.tool_calls %}
            {%- if message.reasoning_content %}
                {{- '<|START_THINKING|>' + message.reasoning_content + '<|END_THINKING|>' }}
            {%- endif %}
            {{- '<|START_ACTION|>[\\n' }}
            {%- for call in message.tool_calls %}
                {{- '    {"tool_call_id": "' + call.id + '", "tool_name": "' + call.function.name }}
                {{- '", "parameters": ' }}
                {{- call.function.arguments | tojson + '}' + (',' if not loop.last else '') + '\\n' }}
            {%- endfor %}
            {{- ']<|END_ACTION|><|END_OF_TURN_TOKEN|>' }}
        {%- else %}
            {{- '<|START_RESPONSE|>' + message.content + '<|END_RESPONSE|><|END_OF_TURN_TOKEN|>' }}
        {%- endif %}
    {%- elif message.role == 'tool' %}
        {%- if loop.previtem.role != 'tool' %}
            {{- '<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|><|START_TOOL_RESULT|>[' }}
        {%- endif %}
        {{- '{"tool_call_id": "' + message.tool_call_id + '", "results": ' + message.content | tojson + '}' }}
        {%- if loop.last or loop.nextitem.role != 'tool' %}{{- ']<|END_TOOL_RESULT|><|END_OF_TURN_TOKEN|>' }}
        {%- else %}{{- ', ' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' }}{%- endif %}"""
)

PHI: Final = (
    _tools("<|system|>Tools: <|tool|>", "<|/tool|> Write <|tool_call|>[…]<|/tool_call|>.<|end|>")
    + """
{%- for message in messages %}
    {{- '<|' + message.role + '|>' + message.content }}
    {%- if message.tool_calls %}
        {{- '<|tool_call|>[' }}
        {%- for call in message.tool_calls %}
            {{- '{"name": "' + call.function.name + '", "arguments": ' + call.function.arguments | tojson + '}' }}
            {{- ', ' if not loop.last }}
        {%- endfor %}
        {{- ']<|/tool_call|>' }}
    {%- endif %}
    {{- '<|end|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|assistant|>' }}{%- endif %}"""
)

STYLES: Final = {
    "qwen3_coder": QWEN3_CODER,
    "kimi": KIMI,
    "mistral": MISTRAL,
    "mistral_v11": MISTRAL_V11,
    "deepseek": DEEPSEEK,
    "deepseek_v31": DEEPSEEK_V31,
    "minimax": MINIMAX,
    "command": COMMAND,
    "phi": PHI,
}
"""The templates by the style that they are in."""
EOS: Final = {"mistral": "</s>", "mistral_v11": "</s>", "minimax": "[e~["}
