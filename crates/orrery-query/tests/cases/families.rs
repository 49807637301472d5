// Calls a macro with the case files, each as a test's name and the file's. Both crates that run the cases include it.
macro_rules! with_case_families {
    ($run:ident) => {
        $run! {
            aggregate: "aggregate",
            array: "array",
            bitwise: "bitwise",
            computed: "computed",
            conditional: "conditional",
            datetime: "datetime",
            distinct: "distinct",
            error: "error",
            from: "from",
            fulltext: "fulltext",
            groupby: "groupby",
            join: "join",
            lexical: "lexical",
            like: "like",
            math: "math",
            offsetlimit: "offsetlimit",
            operator: "operator",
            orderby: "orderby",
            parameter: "parameter",
            scalar: "scalar",
            select: "select",
            spatial: "spatial",
            string: "string",
            subquery: "subquery",
            syntax: "syntax",
            top: "top",
            typecheck: "typecheck",
            udf: "udf",
            vector: "vector",
            where_clause: "where",
        }
    };
}
