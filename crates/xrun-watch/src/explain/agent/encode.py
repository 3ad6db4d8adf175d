"""JSON text of dictionaries, lists, strings, numbers, booleans and None, without the module `json`, which a program may replace."""

escape = load("_json").encode_basestring_ascii


def encode(value):
    if value is None:
        return "null"
    if value is True:
        return "true"
    if value is False:
        return "false"
    if isinstance(value, str):
        return escape(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value) if value - value == 0 else "null"
    if isinstance(value, dict):
        return "{" + ",".join(escape(str(key)) + ":" + encode(one) for key, one in value.items()) + "}"
    return "[" + ",".join(map(encode, value)) + "]"
