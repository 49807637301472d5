#!/usr/bin/env python3
"""Random queries for `compare_planner.py`, one JSON object a line.

  fuzz/planner_queries.py SHAPE FIRST LAST > QUERIES

SHAPE is one of: applications (what object mappers and people write), keys (filters on partition keys), groups (GROUP BY,
aggregates, DISTINCT and ORDER BY), types (conditions and values whose types decide), scopes (subqueries, LET, joins),
search (vectors and full text), tokens (broken texts), operators (precedence), spellings (literals, names, blanks and comments),
calls (every function), nested (FROM subqueries in each other), aggregated (aggregates over subqueries). Each number from FIRST
to LAST - 1 is a seed.
"""
import json, random, sys

class Random(random.Random):
    def maybe(self, chance, text): return text if self.random() < chance else ""
    def some(self, items, low, high): return [self.choice(items) for _ in range(self.randint(low, high))]

NUMBERS = ["0", "1", "-1", "2.5", "1e3", "42", "-0.5", "9007199254740993", "0x1F"]
STRINGS = ["''", "'a'", '"b"', "'it\\'s'", "'\\u00e9'", '"x y"', "'1'", "'2024-05-06T07:08:09Z'"]
OTHERS = ["null", "true", "false", "undefined", "[]", "{}", "[1, 'a']", '{"k": 1}', "[[]]", "{a: [null]}"]
NAMES = ["id", "type", "name", "price", "qty", "address.city", "tags", "items", "items[0]", "meta.v", '["last name"]', "x"]
# The functions that are documented: smallest and largest number of arguments.
FUNCTIONS = {"ABS": (1, 1), "ACOS": (1, 1), "ATN2": (2, 2), "CEILING": (1, 1), "COS": (1, 1), "COT": (1, 1), "DEGREES": (1, 1), "EXP": (1, 1), "FLOOR": (1, 1), "LOG": (1, 2), "LOG10": (1, 1), "NumberBin": (1, 2), "PI": (0, 0), "POWER": (2, 2), "RADIANS": (1, 1), "ROUND": (1, 2), "SIGN": (1, 1), "SIN": (1, 1), "SQRT": (1, 1), "SQUARE": (1, 1), "TAN": (1, 1), "TRUNC": (1, 1),
    "IntAdd": (2, 2), "IntBitAnd": (2, 2), "IntBitLeftShift": (2, 2), "IntBitNot": (1, 1), "IntDiv": (2, 2), "IntMod": (2, 2), "IntMul": (2, 2), "IntSub": (2, 2), "CONCAT": (2, 4), "CONTAINS": (2, 3), "ENDSWITH": (2, 3), "INDEX_OF": (2, 3), "LEFT": (2, 2), "LENGTH": (1, 1), "LOWER": (1, 1), "LTRIM": (1, 2), "REPLACE": (3, 3), "REPLICATE": (2, 2), "REVERSE": (1, 1), "RIGHT": (2, 2), "RTRIM": (1, 2), "RegexMatch": (2, 3), "STARTSWITH": (2, 3), "StringEquals": (2, 3), "StringJoin": (2, 2), "StringSplit": (2, 2), "StringToArray": (1, 1), "StringToBoolean": (1, 1), "StringToNull": (1, 1), "StringToNumber": (1, 1), "StringToObject": (1, 1), "SUBSTRING": (3, 3), "ToString": (1, 1), "TRIM": (1, 2), "UPPER": (1, 1),
    "ARRAY_AVG": (1, 1), "ARRAY_CONCAT": (2, 3), "ARRAY_CONTAINS": (2, 3), "ARRAY_CONTAINS_ALL": (2, 3), "ARRAY_CONTAINS_ANY": (2, 3), "ARRAY_LENGTH": (1, 1), "ARRAY_MAX": (1, 1), "ARRAY_MEDIAN": (1, 1), "ARRAY_MIN": (1, 1), "ARRAY_SLICE": (2, 3), "ARRAY_SUM": (1, 1), "CHOOSE": (2, 4), "IIF": (3, 3), "ObjectToArray": (1, 3), "SetDifference": (2, 2), "SetEqual": (2, 2), "SetIntersect": (2, 2), "SetUnion": (2, 2), "DocumentId": (1, 1),
    "IS_ARRAY": (1, 1), "IS_BOOL": (1, 1), "IS_DEFINED": (1, 1), "IS_FINITE_NUMBER": (1, 1), "IS_INTEGER": (1, 1), "IS_NULL": (1, 1), "IS_NUMBER": (1, 1), "IS_OBJECT": (1, 1), "IS_PRIMITIVE": (1, 1), "IS_STRING": (1, 1), "DateTimeAdd": (3, 3), "DateTimeBin": (2, 4), "DateTimeDiff": (3, 3), "DateTimeFormat": (2, 2), "DateTimeFromParts": (3, 7), "DateTimePart": (2, 2), "DateTimeToTicks": (1, 1), "DateTimeToTimestamp": (1, 1), "GetCurrentDateTime": (0, 0), "TicksToDateTime": (1, 1), "TimestampToDateTime": (1, 1),
    "ST_AREA": (1, 1), "ST_DISTANCE": (2, 2), "ST_INTERSECTS": (2, 2), "ST_ISVALID": (1, 1), "ST_WITHIN": (2, 2), "FullTextContains": (2, 2), "FullTextContainsAll": (2, 3), "FullTextContainsAny": (2, 3), "VectorDistance": (2, 2)}
PARAMETERS = {"@i": 7, "@s": "seven", "@b": True, "@n": None, "@l": [1, 2], "@o": {"k": 1}}

class Query:
    def __init__(self, seed): self.r, self.used = Random(seed), {}
    def parameter(self):
        name = self.r.choice(list(PARAMETERS)); self.used[name] = PARAMETERS[name]; return name
    def literal(self):
        k = self.r.random()
        return self.r.choice(NUMBERS if k < .4 else STRINGS if k < .8 else OTHERS) if k < .9 else self.parameter()
    def path(self, alias="c"):
        name = self.r.choice(NAMES); return alias + name if name.startswith("[") else f"{alias}.{name}"

    # What object mappers and people write.
    def applications(self):
        r = self.r; kind = r.randrange(9); p, w = self.path, self.simple
        if kind == 0: return f"SELECT {r.maybe(.2, 'DISTINCT ')}{r.maybe(.2, 'TOP 10 ')}{', '.join(f'{p()} AS p{i}' for i in range(r.randint(1, 4)))} FROM c WHERE {w()}{r.maybe(.5, ' ORDER BY ' + p() + r.choice(['', ' DESC']))}"
        if kind == 1: return f'SELECT VALUE root FROM root WHERE ({w("root")} AND {w("root")}){r.maybe(.4, " ORDER BY " + p("root"))}{r.maybe(.3, " OFFSET 0 LIMIT 20")}'
        if kind == 2: return f'SELECT VALUE root FROM root JOIN (SELECT VALUE EXISTS(SELECT VALUE t0 FROM root JOIN t0 IN root["tags"] WHERE (t0 = {self.literal()}))) AS v0 WHERE (v0 {r.choice(["", "= true", "AND (root.x > 1)"])})'
        if kind == 3: return f"SELECT VALUE {r.choice(['COUNT', 'SUM', 'AVG', 'MIN', 'MAX'])}({r.choice(['1', p()])}) FROM c{r.maybe(.6, ' WHERE ' + w())}"
        if kind == 4: return f"SELECT {p()}, {r.choice(['COUNT(1)', 'SUM(c.price * c.qty)', 'AVG(c.price)', 'MAX(c.name)'])} AS v FROM c{r.maybe(.4, ' WHERE ' + w())} GROUP BY {p()}"
        if kind == 5: return f"SELECT c.id, i.sku, i.n * {self.literal()} AS total FROM c JOIN i IN c.items{r.maybe(.3, ' JOIN t IN i.tags')} WHERE {w()} AND i.n {r.choice(['>', '=', '<='])} {self.literal()}"
        if kind == 6: return f"SELECT VALUE {{id: c.id, first: c.items[0], n: ARRAY_LENGTH(c.items), has: ARRAY_CONTAINS(c.tags, {self.literal()}{r.maybe(.3, ', true')})}} FROM c WHERE {w()}"
        if kind == 7: return f"SELECT * FROM c WHERE {' OR '.join(f'(c.id = {self.literal()} AND c.pk = {self.literal()})' for _ in range(r.randint(1, 4)))}"
        return f"SELECT c.id, (SELECT VALUE {r.choice(['COUNT(1)', 'SUM(i.n)', 'MAX(i.n)'])} FROM i IN c.items WHERE i.n > {self.literal()}) AS n FROM c WHERE {w()} ORDER BY c._ts DESC{r.maybe(.4, f' OFFSET {r.randint(0, 30)} LIMIT {r.randint(0, 30)}')}"
    def simple(self, alias="c"):
        r, p = self.r, lambda: self.path(alias); kind = r.randrange(11); v = self.literal
        return [f"{p()} {r.choice(['=', '!=', '<>', '<', '>', '<=', '>='])} {v()}", f"STARTSWITH({p()}, {r.choice(STRINGS)}{r.maybe(.3, ', true')})", f"{r.maybe(.4, 'NOT ')}IS_DEFINED({p()})",
                f"ARRAY_CONTAINS({r.choice([p(), '[1, 2]', '@l'])}, {r.choice([p(), v()])})" if not self.used.update({"@l": PARAMETERS["@l"]}) else "", f"{p()} {r.maybe(.3, 'NOT ')}IN ({', '.join(v() for _ in range(r.randint(1, 4)))})",
                f"{p()} {r.maybe(.2, 'NOT ')}BETWEEN {v()} AND {v()}", f"CONTAINS(LOWER({p()}), {r.choice(STRINGS)})", f"EXISTS(SELECT VALUE t FROM t IN {p()} WHERE t {r.choice(['=', '>'])} {v()})",
                f"({p()} = {v()} OR {p()} = {v()})", f"{p()} {r.maybe(.2, 'NOT ')}LIKE {r.choice(STRINGS)}", f"NOT ({p()} = {v()})"][kind]

    # Filters on partition keys, plain and hierarchical.
    def keys(self):
        def condition(depth):
            r = self.r; k = r.random(); path = r.choice(["c.pk", "c.pk", 'c["pk"]', "c.a", "c.n", "c.deep.x", "c.id"])
            if depth and k < .3: return f"({condition(depth - 1)} {r.choice(['AND', 'OR'])} {condition(depth - 1)})"
            if depth and k < .38: return f"NOT ({condition(depth - 1)})"
            if k < .6: return f"{path} {r.choice(['=', '=', '=', '!=', '<', '>='])} {self.literal()}"
            if k < .66: return f"{self.literal()} = {path}"
            if k < .78: return f"{path} IN ({', '.join(self.literal() for _ in range(r.randint(1, 4)))})"
            if k < .84: return r.choice([f"IS_NULL({path})", f"IS_DEFINED({path})", f"NOT IS_DEFINED({path})", f"IS_STRING({path})", f"IS_BOOL({path})"])
            if k < .90: return f"{path} BETWEEN {self.literal()} AND {self.literal()}"
            if k < .94: return f"StringEquals({path}, {r.choice(STRINGS)})"
            if k < .97: return f"ARRAY_CONTAINS([{', '.join(self.literal() for _ in range(r.randint(1, 3)))}], {path})"
            return r.choice([path, "true", "false", "1 = 1", f"({path} ?? 1) = 1"])
        select = self.r.choice(["*", "VALUE c", "c.a", "COUNT(1) AS n", "VALUE COUNT(1)", "DISTINCT VALUE c.a"])
        order = self.r.maybe(.25, f" ORDER BY {self.r.choice(['c.a', 'c.pk', 'c.n DESC'])}") if "COUNT" not in select else ""
        return f"SELECT {select} FROM c WHERE {condition(3)}{order}"

    # Grouping, aggregates, DISTINCT and their order.
    def groups(self):
        r = self.r; p = self.path
        source, alias = r.choice([("c", "c")] * 6 + [("root r", "r"), ("i IN c.items", "i"), ("(SELECT c.x, c.name FROM c) AS s", "s"), ("(SELECT VALUE c.meta FROM c) AS s", "s"), ("c JOIN i IN c.items", "i"), ("(SELECT c.x, COUNT(1) AS n FROM c GROUP BY c.x) AS s", "s"), ("(SELECT DISTINCT VALUE c.x FROM c) AS s", "s")])
        keys = [r.choice([p(alias), p(alias), p(alias), f"LOWER({p(alias)})", f"{p(alias)} + 1", f"{{a: {p(alias)}}}", alias, "1"]) for _ in range(r.randint(1, 3))]
        def aggregate():
            name = r.choice(["COUNT", "SUM", "AVG", "MIN", "MAX", "COUNTIF", "MakeList", "MakeSet", "count", "Max"])
            inner = r.choice(["1", p(alias), p(alias), f"{p(alias)} * 2", alias, "true", f"{p(alias)} > 1", f"(SELECT VALUE MAX(t) FROM t IN {p(alias)})", f"ARRAY_LENGTH({p(alias)})"])
            made = f"{name}({inner})"
            return r.choice([made] * 7 + [f"{made} + 1", f"{{n: {made}}}", f"[{made}]", f"IIF({made} > 1, 'a', 'b')", f"ROUND({made}, 1)", f"{made} / {name}(1)"])
        column = lambda: r.choice([r.choice(keys), aggregate(), aggregate(), "1", p(alias)])
        listed = ", ".join(column() + r.maybe(.6, f" AS f{i}") for i in range(r.randint(1, 3)))
        select = r.choice([listed, listed, "VALUE " + column(), "VALUE {" + ", ".join(f"k{i}: {column()}" for i in range(r.randint(1, 2))) + "}"])
        text = f"SELECT {r.maybe(.15, 'DISTINCT ')}{r.maybe(.12, 'TOP 3 ')}{select} FROM {source}{r.maybe(.25, ' WHERE ' + self.simple(alias))}{r.maybe(.65, ' GROUP BY ' + ', '.join(keys))}"
        return text + r.maybe(.3, " ORDER BY " + ", ".join(r.choice([r.choice(keys), aggregate(), p(alias)]) + r.choice(["", " ASC", " DESC"]) for _ in range(r.randint(1, 2)))) + r.maybe(.12, " OFFSET 1 LIMIT 2")

    # Values and conditions whose types decide.
    def types(self):
        calls = {"ABS": 1, "UPPER": 1, "CONCAT": 2, "LENGTH": 1, "ARRAY_LENGTH": 1, "ARRAY_CONCAT": 2, "ToString": 1, "StringToNumber": 1, "StringToArray": 1, "IS_NUMBER": 1, "IS_ARRAY": 1, "IS_OBJECT": 1, "IS_PRIMITIVE": 1, "IS_DEFINED": 1, "SUBSTRING": 3, "REPLACE": 3, "ROUND": 1,
                 "CONTAINS": 2, "ARRAY_CONTAINS": 2, "ObjectToArray": 1, "DateTimeAdd": 3, "DateTimePart": 2, "IIF": 3, "SetUnion": 2, "INDEX_OF": 2, "StringJoin": 2, "POWER": 2, "LEFT": 2, "ST_DISTANCE": 2, "IntAdd": 2, "NumberBin": 2, "RegexMatch": 2, "HASH": 1, "ARRAY_SLICE": 2, "CHOOSE": 3}
        def value(depth):
            r = self.r; k = r.random()
            if depth == 0 or k < .3: return r.choice([self.path(), self.path(), self.literal(), self.literal(), "c"])
            if k < .62: name = r.choice(list(calls)); return f"{name}({', '.join(value(depth - 1) for _ in range(calls[name]))})"
            if k < .74: return f"({value(depth - 1)} {r.choice(['+', '-', '*', '/', '%', '||', '??', '&', '|', '<<'])} {value(depth - 1)})"
            if k < .84: return f"({value(depth - 1)} {r.choice(['=', '!=', '<', '>', '>=', 'AND', 'OR'])} {value(depth - 1)})"
            if k < .88: return f"({value(depth - 1)} ? {value(depth - 1)} : {value(depth - 1)})"
            if k < .92: return r.choice([f"(NOT {value(depth - 1)})", f"-{value(0)}", f"~{value(0)}"])
            if k < .95: return r.choice([f"[{value(depth - 1)}]", f"{{k: {value(depth - 1)}}}", f"{{k: {value(depth - 1)}}}.k", f"[{value(depth - 1)}][0]"])
            if k < .98: return f"({value(depth - 1)} {r.maybe(.3, 'NOT ')}IN ({value(depth - 1)}, {value(0)}))"
            return f"({value(depth - 1)} BETWEEN {value(0)} AND {value(0)})"
        shape = self.r.randrange(5)
        if shape == 0: return f"SELECT VALUE {value(3)} FROM c"
        if shape == 1: return f"SELECT * FROM c WHERE {value(3)}"
        if shape == 2: return f"SELECT c.id, {value(2)} AS v FROM c WHERE {value(2)} = {value(2)}"
        if shape == 3: return f"SELECT VALUE COUNT({value(2)}) FROM c WHERE {value(2)}"
        return f"SELECT TOP 3 VALUE {value(2)} FROM c WHERE {self.simple()} AND {value(2)} ORDER BY c.x"

    # Subqueries, LET, joins, and names that meet.
    def scopes(self):
        names = ["c", "t", "u", "v", "x"]
        def source(depth, outer):
            r = self.r; k = r.random(); alias = r.choice(names); base = r.choice(outer or ["c"])
            if k < .3: return f"{alias} IN {self.path(base)}", alias
            if k < .4: return f"{base}", base
            if k < .5: return f"{self.path(base)}{r.maybe(.6, ' AS ' + alias)}", alias
            if k < .6: return f"{base} AS {alias}", alias
            if depth: return f"{r.maybe(.2, alias + ' IN ')}({query(depth - 1, outer)}){r.maybe(.9, r.maybe(.5, ' AS') + ' ' + alias)}", alias
            return "c", "c"
        def value(depth, scope):
            r = self.r; k = r.random()
            if not depth or k < .4: return r.choice([self.path(r.choice(scope or names)), r.choice(scope or names), self.literal()])
            if k < .5: return f"(LET {r.choice(names)} = {value(depth - 1, scope)} IN {value(depth - 1, scope + [r.choice(names)])})"
            if k < .75: return f"{r.choice(['', '', 'ARRAY', 'EXISTS', 'FIRST', 'LAST', 'ALL'])}({query(depth - 1, scope)})"
            if k < .85: return f"{r.choice(['COUNT', 'SUM', 'MAX'])}({value(depth - 1, scope)})"
            return f"({value(depth - 1, scope)} {r.choice(['+', '=', 'AND', '??', '>'])} {value(depth - 1, scope)})"
        def query(depth, outer):
            r = self.r; texts, scope = [], list(outer)
            for _ in range(r.choice([0, 1, 1, 1, 1, 2, 3]) if outer else r.choice([1, 1, 1, 2, 3])):
                text, alias = source(depth, scope); texts.append(text); scope.append(alias)
            listed = r.choice([f"VALUE {value(depth, scope)}", "*", ", ".join(value(depth, scope) + r.maybe(.5, f" AS {r.choice(names)}{i}") for i in range(r.randint(1, 2)))])
            if not texts and listed == "*": listed = "VALUE 1"
            return f"SELECT {r.maybe(.08, 'DISTINCT ')}{listed}{' FROM ' * bool(texts)}{' JOIN '.join(texts)}{r.maybe(.35, ' WHERE ' + value(depth, scope))}"
        return query(2, []) + self.r.maybe(.15, f" ORDER BY {self.path()}")

    # Vectors and full text.
    def search(self):
        r = self.r; vector = lambda: r.choice(["[1, 2, 3]", "[0.5]", "[]", "@l", self.path(), "[1, 'a']"])
        if "@l": self.used["@l"] = PARAMETERS["@l"]
        options = lambda: r.choice(["true", "false", "1", self.path()]) + r.maybe(.5, ", " + r.choice(["{}", "{distanceFunction: 'cosine'}", "{distanceFunction: 'x'}", "{dataType: 'float32'}", "{searchListSizeMultiplier: 5}", "{filterPriority: 0.5}", "{filterPriority: 2}", "{nope: 1}", "5"]))
        distance = lambda: f"VectorDistance({self.path()}, {vector()}{r.maybe(.25, ', ' + options())})"
        term = lambda: r.choice(STRINGS + ["@s", "{term: 'x', distance: 1}", "{term: 'x', distance: 3}", "1", self.path()])
        def score():
            self.used["@s"] = PARAMETERS["@s"]; return f"FullTextScore({self.path()}, {', '.join(term() if r.random() < .2 else r.choice(STRINGS) for _ in range(r.randint(1, 6)))})"
        one = lambda: r.choice([distance, score, score])()
        weights = r.maybe(.25, ", " + r.choice(["[1, 2]", "[1]", "[0.5, -1, 2]", "@l", "['a', 1]"]))
        rank = r.choice([one(), f"RRF({', '.join(one() for _ in range(r.randint(1, 3)))}{weights})", f"COMBINEDSCORE({score()}, {one()})", one()])
        select = r.choice(["*", "c.id", "TOP 10 c.id, c.name", "VALUE c", f"TOP 5 c.id, {distance()} AS score", "DISTINCT c.id", "COUNT(1)"])
        where = r.maybe(.4, " WHERE " + r.choice([self.simple(), f"FullTextContains({self.path()}, {r.choice(STRINGS)})", f"FullTextContainsAll({self.path()}, {r.choice(STRINGS)}, {term()})"]))
        order = r.choice([f" ORDER BY RANK {rank}", f" ORDER BY RANK {rank}", f" ORDER BY {distance()}", f" ORDER BY {self.path()}, {distance()}", ""])
        return f"SELECT {select} FROM c{r.maybe(.05, ' JOIN t IN c.tags')}{where}{order}{r.maybe(.2, f' OFFSET {r.randint(0, 3)} LIMIT {r.randint(0, 30)}')}"

    # Texts that are broken somewhere.
    def tokens(self):
        r = self.r; words = "SELECT FROM WHERE AND OR NOT IN BETWEEN LIKE ESCAPE ORDER BY GROUP TOP DISTINCT VALUE AS JOIN EXISTS ARRAY OFFSET LIMIT ASC DESC RANK LET udf true null undefined c c.a x ( ) [ ] { } , . : ? ?? * + - / % = != < <= >> || | & ~ @i 1 1.5 1e 0x .5 'a' \"b\" 'open -- /* */ é # $ \\ left( end".split()
        base = getattr(self, r.choice(["applications", "keys", "groups", "types", "scopes", "search"]))().split(" ")
        if r.random() < .25: return " ".join(r.some(words, 1, 12))
        for _ in range(r.randint(1, 2)):
            at = r.randrange(len(base)); kind = r.random()
            if kind < .3 and len(base) > 1: del base[at]
            elif kind < .7: base.insert(at, r.choice(words))
            elif kind < .85: base[at] = r.choice(words)
            else: base[at] = base[at][:r.randint(0, len(base[at]))]
        return " ".join(base)

    # Operators without parentheses.
    def operators(self):
        r = self.r; binary = ["+", "-", "*", "/", "%", "||", "&", "|", "^", "<<", ">>", ">>>", "??", "=", "!=", "<", ">", "<=", ">=", "AND", "OR", "BETWEEN 1 AND", "LIKE", "? c.p :"]
        operand = lambda: r.choice(["NOT ", "-", "~", "+"] + [""] * 7) + r.choice(["c.a", "c.b", "1", "(c.d)", "@i", "'s'", "ABS(c.n)", "true", "(1 + 2)"]) + r.choice([".x", "[0]"] + [""] * 8)
        text = operand()
        for _ in range(r.randint(1, 6)): text += f" {r.choice(binary)} {operand()}" if r.random() < .9 else r.choice([" IN (1, c.k)", " NOT IN (2)"])
        if "@i" in text: self.used["@i"] = PARAMETERS["@i"]
        return r.choice([f"SELECT VALUE {text} FROM c", f"SELECT * FROM c WHERE {text}", f"SELECT {text} FROM c ORDER BY c.x", f"SELECT COUNT(1) FROM c WHERE {text}"])

    # Literals, names, blanks and comments as they can be spelled.
    def spellings(self):
        r = self.r
        numbers = ["0", "00", "1.50", "1E+2", "1e-3", "1.e3", ".5", "5.", "0x10", "0xFFFFFFFFF", "1e400", "123456789012345678901234567890", "-0", "0.30000000000000004", "1e21", "12345678.9", "4.9e-324", "1_000", "1f", "0.0000001"]
        strings = ["''", '""', "'it\\'s'", '"say \\"x\\""', "'\\n\\t\\\\'", "'\\u00e9\\u4e2d'", "'é中'", "'\\x'", "'a\nb'", "'/* no */'", "'--no'", "'\\/'", "'\\u12'", "'ab%c_d'", "'\u00a0'"]
        blank = lambda: r.choice([" ", "  ", "\n", "\t", " /* c */ ", " -- x\n", "\r\n"])
        literal = lambda: r.choice(numbers if r.random() < .5 else strings)
        alias = r.choice(["c", "root", "_c", "c1", "é", "C"])
        names = ["a", "Type", "_ts", "$x", "résumé", "value1", "first", "all", "let", "Order_", "key", "rank"]
        path = lambda: f"{alias}.{r.choice(names)}" if r.random() < .7 else f"{alias}[{r.choice(['%r', '%s'])}]" .replace("%r", repr(r.choice(names))).replace("%s", '"a b"')
        chosen = r.choice([literal(), path(), f"[{literal()},{literal()}]", "{" + r.choice(["x", "value", "end", "order", "1"]) + f": {literal()}" + "}"])
        named = r.maybe(.3, " AS " + r.choice(["x", "order", "value", "end", "set", "udf", "Top"]))
        return f"{r.choice(['SELECT', 'select', 'Select'])}{blank()}{r.maybe(.5, 'VALUE ')}{chosen}{named}{blank()}FROM{blank()}{alias}{blank()}WHERE{blank()}{path()}{r.choice(['=', '!=', '>', ' IN (', '<'])}{literal()}{r.maybe(.1, ')')}{r.maybe(.3, ' ORDER BY ' + path())}"

    # Every function, with arguments of every type and nearly the right number of them.
    def calls(self):
        r = self.r
        def value(depth):
            k = r.random()
            if depth == 0 or k < .5: return r.choice([self.path(), self.path(), self.literal(), "c"])
            if k < .75: return call(depth - 1)
            return r.choice([f"({value(depth - 1)} {r.choice(['+', '||', '=', '<', 'AND', '??'])} {value(depth - 1)})", f"[{value(depth - 1)}]", f"(SELECT VALUE {r.choice(['COUNT', 'MAX', 'SUM'])}(t) FROM t IN {self.path()})"])
        def call(depth):
            name = r.choice(list(FUNCTIONS)); low, high = FUNCTIONS[name]
            count = r.randint(low, high) + (r.choice([-1, 1]) if r.random() < .03 else 0)
            return f"{r.choice([name, name, name.lower()])}({', '.join(value(depth) for _ in range(max(count, 0)))})"
        return r.choice([f"SELECT VALUE {call(2)} FROM c", f"SELECT * FROM c WHERE {call(2)}{r.choice(['', f' = {self.literal()}', f' > {self.literal()}', f' AND {self.simple()}'])}", f"SELECT c.id FROM c WHERE {call(1)} AND {call(1)} ORDER BY c.x"])

    # FROM subqueries in each other.
    def nested(self):
        r = self.r
        def inner(depth):
            selected = r.choice(["*", "VALUE c", "c.x, c.name", "VALUE c.meta", "VALUE {x: c.x, y: c}", "DISTINCT c.x", "VALUE COUNT(1)", "c.x, COUNT(1) AS n", "DISTINCT VALUE c.x"])
            source = "c" if depth == 0 else f"({inner(depth - 1)}) AS c"
            return f"SELECT {selected} FROM {source}{r.maybe(.4, ' WHERE ' + self.simple())}{' GROUP BY c.x' * (' AS n' in selected)}"
        selected = r.choice(["*", "VALUE q", "q.x, q.name", "COUNT(1)", "VALUE SUM(q.x)", "DISTINCT q.x", "q.x, COUNT(1) AS n", "VALUE q.y"])
        order = r.maybe(.4, " ORDER BY " + r.choice(["q.x", "q.y.x", "q", "q.n DESC", "q.x, q.name", "COUNT(1)"]))
        return f"SELECT {selected} FROM ({inner(r.choice([0, 0, 0, 1]))}) {r.maybe(.5, 'AS ')}q{r.maybe(.2, ' JOIN z IN q.x')}{r.maybe(.4, ' WHERE ' + self.simple('q'))}{' GROUP BY q.x' * (' AS n' in selected)}{order}{r.maybe(.1, ' OFFSET 1 LIMIT 2')}"

    # Aggregates over subqueries.
    def aggregated(self):
        r = self.r
        inner = lambda: f"(SELECT VALUE {r.choice(['MAX', 'SUM', 'COUNT', 'MIN', 'AVG'])}({r.choice(['t', 't.n', '1'])}) FROM t IN {self.path()}{r.maybe(.4, f' WHERE t {chr(61)} {self.literal()}')})"
        made = lambda: f"{r.choice(['SUM', 'MAX', 'COUNT', 'AVG', 'MIN'])}({r.choice([inner(), inner() + ' + 1', 'ARRAY_LENGTH(ARRAY(SELECT VALUE t FROM t IN c.tags))', 'EXISTS(SELECT VALUE t FROM t IN c.items)', '(SELECT VALUE c.x)', 'c.price'])})"
        return r.choice([f"SELECT VALUE {made()} FROM c", f"SELECT {made()} AS a, {made()} AS b FROM c{r.maybe(.4, ' GROUP BY c.type')}", f"SELECT {made()} FROM c JOIN j IN c.items WHERE {self.simple('j')}", f"SELECT VALUE {made()} FROM (SELECT VALUE c FROM c WHERE {self.simple()}) c", f"SELECT c.type, {made()} FROM c GROUP BY c.type ORDER BY {r.choice(['c.type', made()])}"])

SHAPES = ["applications", "keys", "groups", "types", "scopes", "search", "tokens", "operators", "spellings", "calls", "nested", "aggregated"]

def case(shape, seed):
    query = Query(f"{shape}{seed}"); text = getattr(query, shape)()
    made = {"query": text}
    if query.used: made["parameters"] = [{"name": name, "value": value} for name, value in sorted(query.used.items())]
    made.update(query.r.choice([{"pk": ["/pk"]}] * 4 + [{"pk": ["/deep/x"]}, {"pk": ["/pk", "/a"], "pkKind": "MultiHash"}, {"pk": ["/pk", "/a", "/n"], "pkKind": "MultiHash"}]))
    return made

if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[1] not in SHAPES: sys.exit(__doc__)
    for seed in range(int(sys.argv[2]), int(sys.argv[3])): print(json.dumps(case(sys.argv[1], seed), ensure_ascii=False))
