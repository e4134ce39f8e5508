"""What MCP servers send that is almost what MCP asks for is read part by part."""

from __future__ import annotations

import base64
from typing import Any

import mcp_types as types
import pytest

from ludus.protocol.content import ImageBlock, TextBlock
from ludus.protocol.errors import AuthoringError
from ludus.server.authoring.mcp_repair import repair_result, usable_schema
from ludus.server.authoring.mcp_servers import _content

PIXEL = base64.b64encode(b"\x89PNG").decode()


def shown(**result: Any) -> list[str]:
    """Return what an agent sees of a result: texts, and the types of images."""
    repair_result(result)
    content = _content(types.CallToolResult.model_validate(result, by_name=False))
    return [block.text if isinstance(block, TextBlock) else block.mime_type for block in content]


TEXT = {"type": "text", "text": "seen"}


@pytest.mark.parametrize(
    ("result", "texts"),
    [
        ({"content": [TEXT]}, ["seen"]),
        ({"content": [TEXT, {"type": "video", "url": "x"}, {"text": 7}, 7]},
         ["seen", "[content of type 'video', which is not shown]", "[content of type 'None', which is not shown]",
          "[content of type 'int', which is not shown]"]),
        ({"content": [TEXT], "structuredContent": {"a": 1}}, ["seen", '{"a": 1}']),
        ({"content": [{"type": "text", "text": '{"a": 1}'}], "structuredContent": {"a": 1}}, ['{"a": 1}']),
        ({"content": [{"type": "text", "text": '{ "a":1 }'}], "structuredContent": {"a": 1}}, ['{ "a":1 }']),
        ({"content": [{"type": "text", "text": "5"}], "structuredContent": {"result": 5}}, ["5"]),
        ({"content": [{"type": "text", "text": "five"}], "structuredContent": {"result": "five"}}, ["five"]),
        ({"content": [], "structuredContent": {"a": 1}}, ['{"a": 1}']),
        ({"structuredContent": {"a": 1}}, ['{"a": 1}']),
        ({"content": None, "structuredContent": [1, 2]}, ["[1, 2]"]),
        ({"content": [{**TEXT, "annotations": 7, "_meta": 8}]}, ["seen"]),
        ({"content": [{"type": "image", "data": PIXEL, "mimeType": "image/jpg"}]}, ["image/jpeg"]),
        ({"content": [{"type": "image", "data": f"data:image/png;base64,{PIXEL}", "mimeType": "x"}]}, ["image/png"]),
        ({"content": [{"type": "resource", "resource": {"uri": "x://y", "blob": PIXEL, "mimeType": "image/png"}}]},
         ["image/png"]),
        ({"content": [{"type": "resource", "resource": {"uri": "x://y", "blob": PIXEL, "mimeType": "font/x"}}]},
         ["[resource x://y of type 'font/x']"]),
        ({"content": [{"type": "resource_link", "uri": "x://y", "name": "plan", "description": "of the house"}]},
         ["[resource x://y, plan, of the house]"]),
    ],
)  # fmt: skip
def test_each_part_of_a_result_is_read_by_itself(result: dict[str, Any], texts: list[str]) -> None:
    assert shown(**result) == texts


def test_an_image_keeps_its_data_under_its_right_type() -> None:
    result: dict[str, Any] = {"content": [{"type": "image", "data": f"data:image/jpg;base64,{PIXEL}", "mimeType": "x"}]}
    repair_result(result)
    (image,) = _content(types.CallToolResult.model_validate(result, by_name=False))
    assert image == ImageBlock(data=PIXEL, mime_type="image/jpeg")


def test_a_list_of_tools_keeps_those_that_can_be_read() -> None:
    listed: dict[str, Any] = {
        "tools": [
            {"name": "plain", "inputSchema": {"type": "object"}, "outputSchema": {"type": "array"}, "annotations": 1},
            {"name": "bare", "description": None}, {"name": None}, None, "text",
        ],
        "nextCursor": "2",
    }  # fmt: skip
    repair_result(listed)
    assert listed == {
        "tools": [
            {"name": "plain", "inputSchema": {"type": "object"}}, {"name": "bare", "inputSchema": {"type": "object"}},
        ],
        "nextCursor": "2",
    }  # fmt: skip
    assert types.ListToolsResult.model_validate(listed, by_name=False).next_cursor == "2"


@pytest.mark.parametrize(
    ("schema", "usable"),
    [
        ({"type": "object", "required": None}, {"type": "object"}),
        ({"properties": {"a": None, "b": {"type": "string"}}}, {"properties": {"b": {"type": "string"}}}),
        ({"items": [{"enum": [1]}], "additionalItems": False}, {"prefixItems": [{"enum": [1]}], "items": False}),
        ({"minimum": 1, "exclusiveMinimum": True}, {"exclusiveMinimum": 1}),
        ({"maximum": 1, "exclusiveMaximum": False}, {"maximum": 1}),
        ({"pattern": r"^\p{L}+$", "type": "string"}, {"type": "string"}),
        ({"pattern": "^a+$"}, {"pattern": "^a+$"}),
        ({"properties": {"items": {"type": "array"}, "pattern": {"type": "string"}}},
         {"properties": {"items": {"type": "array"}, "pattern": {"type": "string"}}}),
        ({"enum": [None, {"required": None}], "default": None, "const": None},
         {"enum": [None, {"required": None}], "default": None, "const": None}),
        ({"definitions": {"a": {}}, "$ref": "#/definitions/a"}, {"definitions": {"a": {}}, "$ref": "#/definitions/a"}),
        ({"$defs": {"a/b": {}}, "$ref": "#/$defs/a~1b"}, {"$defs": {"a/b": {}}, "$ref": "#/$defs/a~1b"}),
        ({"properties": {"next": {"$ref": "#"}}}, {"properties": {"next": {"$ref": "#"}}}),
    ],
)  # fmt: skip
def test_schemas_of_older_drafts_become_those_of_2020_12(schema: dict[str, Any], usable: dict[str, Any]) -> None:
    assert usable_schema(schema) == usable


@pytest.mark.parametrize("reference", ["#/$defs/gone", "#gone", "#/properties/a/b", "#/properties/a/type"])
def test_a_reference_to_nothing_is_an_error_of_the_server(reference: str) -> None:
    with pytest.raises(AuthoringError, match="its schema refers to"):
        usable_schema({"properties": {"a": {"type": "string"}, "b": {"$ref": reference}}})
