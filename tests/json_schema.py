"""As much of JSON Schema as our published schemas use; no package is needed."""


def check_schema(value, schema, root=None):
    """Raises AssertionError where `value` is not as `schema` says. Objects have no keys that the schema does not name."""
    root = root or schema
    if "$ref" in schema:
        schema = root["$defs"][schema["$ref"].split("/")[-1]]
    kinds = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool, "number": (int, float)}
    assert "type" not in schema or isinstance(value, kinds[schema["type"]]), (value, schema)
    assert "const" not in schema or value == schema["const"], value
    assert "enum" not in schema or value in schema["enum"], value
    if isinstance(value, list):
        for item in value:
            check_schema(item, schema["items"], root)
    if isinstance(value, dict):
        assert set(schema.get("required", [])) <= set(value), (schema["required"], list(value))
        for key, item in value.items():
            properties = schema.get("properties", {})
            assert key in properties or "additionalProperties" in schema, key
            check_schema(item, properties.get(key, schema.get("additionalProperties", {})), root)
