// The server-side API: getContext(), the collection, request and response, console, and `__`.
// Calls on the collection are queued. The server executes them one by one after the script's function has returned,
// and passes each result to its callback. Data crosses to the server only as JSON text.
(function (native, setupText) {
  "use strict";
  const { parse, stringify } = JSON;
  const { apply } = Reflect;
  const { freeze, keys, defineProperty } = Object;
  const { isArray } = Array;
  const sort = Array.prototype.sort;
  const setup = parse(setupText);
  const BAD_REQUEST = 400, FORBIDDEN = 403, TOO_LARGE = 413;

  function refuse(number, text) {
    throw new Error(number, text);
  }

  function format(pattern, values) {
    let at = 0;
    return apply(String.prototype.replace, pattern, [/%([s%])/g, function (_, letter) {
      return letter === "%" ? "%" : String(values[at++]);
    }]);
  }

  // ---- Messages -------------------------------------------------------------------------------------------

  function makeMessage(properties, writable) {
    const message = {};
    const values = { __proto__: null };
    for (const name of keys(properties)) {
      values[name] = properties[name];
    }
    const sizes = { __proto__: null };
    function checkSize(name, value, before) {
      let size = before;
      if (value !== undefined && value !== null) {
        const text = typeof value === "object" ? stringify(value) : String(value);
        size += text === undefined ? 0 : text.length;
      }
      const most = name === LOG ? setup.logCharactersMax : setup.messageCharactersMax;
      if (size > most) {
        refuse(TOO_LARGE, `Resulting message would be too large because of "${name}". Return from script with current message and use continuation token to call the script again or modify your script.`);
      }
      return size;
    }
    function checkWritable(name) {
      if (!(name in values)) {
        refuse(BAD_REQUEST, `Cannot set new values: ${name}`);
      }
      if (!writable[name]) {
        refuse(FORBIDDEN, `Not a writable property: ${name}`);
      }
    }
    message.getValue = function getValue(name) { return values[name]; };
    message.setValue = function setValue(name, value) {
      checkWritable(name);
      sizes[name] = checkSize(name, value, 0);
      values[name] = value;
    };
    message.appendValue = function appendValue(name, value) {
      checkWritable(name);
      const before = values[name];
      if (typeof before === "string") {
        sizes[name] = checkSize(name, value, sizes[name] || before.length);
        values[name] = before + value;
      } else {
        const joined = before === undefined || before === null ? value : before + value;
        sizes[name] = checkSize(name, joined, 0);
        values[name] = joined;
      }
    };
    for (const name of keys(properties)) {
      message[`get${name}`] = function () { return values[name]; };
      message[`set${name}`] = function (value) { message_set(name, value); };
      message[`append${name}`] = function (value) { message_append(name, value); };
    }
    const message_set = message.setValue, message_append = message.appendValue;
    return { message, values };
  }

  const LOG = "x-ms-documentdb-script-log-results";
  const request = makeMessage(setup.request, { __proto__: null, Body: setup.kind === "pre" });
  const response = setup.response
    && makeMessage(setup.response, { __proto__: null, Body: true, [LOG]: true });

  // ---- The queue ------------------------------------------------------------------------------------------

  let first = null, last = null;
  function enqueue(operation, payload, deliver) {
    if (!native.accepts()) {
      return false;
    }
    const entry = { __proto__: null, operation, payload: stringify(payload), deliver, next: null };
    if (last === null) {
      first = entry;
    } else {
      last.next = entry;
    }
    last = entry;
    return true;
  }
  function step() {
    const entry = first;
    if (entry === null) {
      return false;
    }
    first = entry.next;
    if (first === null) {
      last = null;
    }
    const answer = parse(native.call(entry.operation, entry.payload));
    let error;
    if (answer.error !== null) {
      error = new Error(answer.error.number, answer.error.body);
      defineProperty(error, "body", { value: answer.error.body, writable: true, configurable: true });
    }
    entry.deliver(error, answer);
    return true;
  }

  /// How most calls handle their result.
  function resourceTo(callback) {
    return function (error, answer) {
      if (callback === undefined) {
        if (error !== undefined) {
          throw error;
        }
      } else if (error !== undefined) {
        callback(error);
      } else {
        callback(undefined, answer.body === null ? undefined : answer.body, answer.options);
      }
    };
  }

  // ---- Arguments ------------------------------------------------------------------------------------------

  function optionsAndCallback(options, callback) {
    if (callback === undefined && typeof options === "function") {
      return [{}, options];
    }
    if (options === undefined || options === null) {
      options = {};
    } else if (typeof options !== "object") {
      refuse(BAD_REQUEST, `The "options" parameter must be of type "object". Actual type is: "${typeof options}".`);
    }
    if (callback !== undefined && callback !== null && typeof callback !== "function") {
      refuse(BAD_REQUEST, `The "callback" parameter must be of type "function". Actual type is: "${typeof callback}".`);
    }
    return [options, callback === null ? undefined : callback];
  }
  function atLeast(name, wanted, given) {
    if (given < wanted) {
      refuse(BAD_REQUEST, `The function "${name}" requires at least ${wanted} argument(s) but was called with ${given} argument(s).`);
    }
  }
  function trimmed(link) {
    let start = 0, end = link.length;
    while (start < end && link[start] === "/") start++;
    while (end > start && link[end - 1] === "/") end--;
    return apply(String.prototype.substring, link, [start, end]);
  }
  const ownLinks = [trimmed(setup.selfLink), trimmed(setup.altLink)];
  function checkCollectionLink(link) {
    if (typeof link !== "string" || !apply(RegExp.prototype.test, /^\/?dbs\/[^/]+\/colls\/[^/]+\/?$/i, [link])) {
      refuse(BAD_REQUEST, `Invalid collection link: "${link}".`);
    }
    const text = trimmed(link);
    if (text !== ownLinks[0] && text !== ownLinks[1]) {
      refuse(BAD_REQUEST, `Function is not allowed to operate on resources outside current collection. Make sure that the link provided, "${link}", belongs to current collection.`);
    }
  }
  function documentOf(link) {
    if (typeof link !== "string" || !apply(RegExp.prototype.test, /^\/?dbs\/[^/]+\/colls\/[^/]+\/docs\/[^/]/i, [link])) {
      refuse(BAD_REQUEST, `Invalid document link: "${link}".`);
    }
    const text = trimmed(link);
    for (let at = 0; at < 2; at++) {
      const prefix = `${ownLinks[at]}/docs/`;
      if (apply(String.prototype.startsWith, text, [prefix])) {
        const rest = apply(String.prototype.substring, text, [prefix.length]);
        return at === 0 ? { rid: rest, id: null } : { rid: null, id: rest };
      }
    }
    refuse(BAD_REQUEST, `Function is not allowed to operate on resources outside current collection. Make sure that the link provided, "${link}", belongs to current collection.`);
  }
  function bodyText(body, options, generatesId) {
    if (body === null || typeof body !== "object" && typeof body !== "string") {
      refuse(BAD_REQUEST, "The document body must be an object or a string representing a JSON-serialized object.");
    }
    if (generatesId && options.disableAutomaticIdGeneration !== true) {
      const value = typeof body === "string" ? parse(body) : body;
      if (value !== null && typeof value === "object" && !value.id) {
        return stringify({ ...value, id: native.guid() });
      }
    }
    return typeof body === "string" ? body : stringify(body);
  }
  function textOr(value, otherwise) {
    return value === undefined || value === null || value === "" ? otherwise : String(value);
  }
  function checkIndexAction(options) {
    const action = textOr(options.indexAction, "default");
    if (!apply(RegExp.prototype.test, /^(default|include|exclude)$/i, [action])) {
      refuse(BAD_REQUEST, `The "indexAction" option cannot be "${action}".`);
    }
  }
  function page(options) {
    const size = options.pageSize === undefined || options.pageSize === null ? 100 : Number(options.pageSize);
    return { pageSize: size === -1 || size >= 1 ? Math.floor(size) : 100, continuation: textOr(options.continuation, null) };
  }

  // ---- The collection -------------------------------------------------------------------------------------

  const collection = {
    getSelfLink() { return setup.selfLink; },
    getAltLink() { return setup.altLink; },

    readDocument(link, options, callback) {
      atLeast("readDocument", 1, arguments.length);
      const document = documentOf(link);
      [options, callback] = optionsAndCallback(options, callback);
      return enqueue("read", { ...document, ifNoneMatch: textOr(options.ifNoneMatch, null) }, resourceTo(callback));
    },
    readDocuments(link, options, callback) {
      atLeast("readDocuments", 1, arguments.length);
      checkCollectionLink(link);
      [options, callback] = optionsAndCallback(options, callback);
      return enqueue("list", page(options), resourceTo(callback));
    },
    queryDocuments(link, query, options, callback) {
      atLeast("queryDocuments", 2, arguments.length);
      checkCollectionLink(link);
      if (typeof query !== "string" && typeof query !== "object") {
        refuse(BAD_REQUEST, `The "filterQuery" parameter must be of type "string" or "object". Actual type is: "${typeof query}".`);
      }
      [options, callback] = optionsAndCallback(options, callback);
      const spec = typeof query === "string" ? { query } : query;
      return enqueue("query", { ...page(options), spec }, resourceTo(callback));
    },
    createDocument(link, body, options, callback) {
      atLeast("createDocument", 2, arguments.length);
      checkCollectionLink(link);
      [options, callback] = optionsAndCallback(options, callback);
      checkIndexAction(options);
      return enqueue("create", { body: bodyText(body, options, true) }, resourceTo(callback));
    },
    upsertDocument(link, body, options, callback) {
      atLeast("upsertDocument", 2, arguments.length);
      checkCollectionLink(link);
      [options, callback] = optionsAndCallback(options, callback);
      checkIndexAction(options);
      const etag = textOr(options.etag, null);
      return enqueue("upsert", { body: bodyText(body, options, true), etag }, resourceTo(callback));
    },
    replaceDocument(link, body, options, callback) {
      atLeast("replaceDocument", 2, arguments.length);
      const document = documentOf(link);
      [options, callback] = optionsAndCallback(options, callback);
      checkIndexAction(options);
      const etag = textOr(options.etag, null);
      return enqueue("replace", { ...document, body: bodyText(body, options, false), etag }, resourceTo(callback));
    },
    patchDocument(link, patch, options, callback) {
      atLeast("patchDocument", 2, arguments.length);
      if (patch === null || typeof patch !== "object") {
        refuse(BAD_REQUEST, "The patch specification must be an object or an array.");
      }
      const document = documentOf(link);
      [options, callback] = optionsAndCallback(options, callback);
      checkIndexAction(options);
      const body = stringify(isArray(patch) ? { operations: patch } : patch);
      return enqueue("patch", { ...document, body, etag: textOr(options.etag, null) }, resourceTo(callback));
    },
    deleteDocument(link, options, callback) {
      atLeast("deleteDocument", 1, arguments.length);
      const document = documentOf(link);
      [options, callback] = optionsAndCallback(options, callback);
      return enqueue("delete", { ...document, etag: textOr(options.etag, null) }, function (error, answer) {
        if (callback !== undefined) {
          error === undefined ? callback(undefined, answer.options) : callback(error);
        } else if (error !== undefined) {
          throw error;
        }
      });
    },
  };
  for (const name of ["readAttachment", "readAttachments", "queryAttachments", "createAttachment", "upsertAttachment",
                      "replaceAttachment", "deleteAttachment"]) {
    collection[name] = function () {
      refuse(BAD_REQUEST, `The function "${name}" is not allowed: attachments are not supported.`);
    };
  }

  // ---- Queries in JavaScript: filter, map, sortBy … -------------------------------------------------------

  const RANKS = { __proto__: null, undefined: 0, null: 1, boolean: 2, number: 3, string: 4, object: 5 };
  function rank(value) {
    return RANKS[value === null ? "null" : typeof value] ?? 6;
  }
  function compare(a, b) {
    const difference = rank(a.key) - rank(b.key);
    if (difference !== 0) {
      return difference;
    }
    return rank(a.key) > 4 || a.key === b.key ? 0 : a.key < b.key ? -1 : 1;
  }
  function flattenInto(out, feed, deep) {
    for (let at = 0; at < feed.length; at++) {
      const each = feed[at];
      if (!isArray(each)) {
        out[out.length] = each;
      } else if (deep) {
        flattenInto(out, each, true);
      } else {
        for (let inner = 0; inner < each.length; inner++) {
          out[out.length] = each[inner];
        }
      }
    }
    return out;
  }
  function needFunction(value) {
    if (typeof value !== "function") {
      refuse(BAD_REQUEST, "The predicate/transform function must be provided.");
    }
    return value;
  }
  function sorted(feed, iteratee, direction) {
    const rows = [];
    for (let at = 0; at < feed.length; at++) {
      rows[at] = { value: feed[at], key: iteratee(feed[at]) };
    }
    apply(sort, rows, [function (a, b) { return direction * compare(a, b); }]);
    for (let at = 0; at < rows.length; at++) {
      rows[at] = rows[at].value;
    }
    return rows;
  }
  // Each stage consumes its own arguments and returns its effect on a feed.
  const stages = {
    filter(take) {
      const predicate = needFunction(take());
      return { run: (feed) => { const out = []; for (const each of feed) if (predicate(each)) out[out.length] = each; return out; } };
    },
    map(take) {
      const transform = needFunction(take());
      return { run: (feed) => { const out = []; for (const each of feed) out[out.length] = transform(each); return out; } };
    },
    pluck(take) {
      const name = take();
      if (typeof name !== "string" || name === "") {
        refuse(BAD_REQUEST, "The property name must be a string and cannot be empty.");
      }
      return { run: (feed) => { const out = []; for (const each of feed) out[out.length] = each === undefined || each === null ? undefined : each[name]; return out; } };
    },
    flatten(take, peek) {
      const shallow = typeof peek() === "boolean" ? take() : false;
      return { run: (feed) => flattenInto([], feed, !shallow) };
    },
    unwind(take, peek) {
      const inner = take();
      if (inner === undefined) {
        refuse(BAD_REQUEST, 'When using "unwind", "collectionSelector" must be used.');
      }
      if (typeof inner !== "function") {
        refuse(BAD_REQUEST, 'When using "unwind", "collectionSelector" must be a function.');
      }
      const result = typeof peek() === "function" && peek().length >= 2 ? take() : undefined;
      return {
        run: (feed) => {
          const out = [];
          for (const each of feed) {
            const elements = inner(each);
            if (elements === undefined || elements === null) continue;
            for (const element of elements) out[out.length] = result === undefined ? element : result(each, element);
          }
          return out;
        },
      };
    },
    sortBy(take) {
      const iteratee = needFunction(take());
      return { sorts: true, run: (feed) => sorted(feed, iteratee, 1) };
    },
    sortByDescending(take) {
      const iteratee = needFunction(take());
      return { sorts: true, run: (feed) => sorted(feed, iteratee, -1) };
    },
  };
  function answerTo(callback) {
    return callback !== undefined ? callback : function (error, feed) {
      if (error !== undefined) {
        throw error;
      }
      if (response === null) {
        refuse(BAD_REQUEST, "The callback function must be provided for scenarios, such as pre-trigger, when response object is not available.");
      }
      response.message.appendBody(stringify(feed));
    };
  }
  // Reads items until the stages have filled a page. A sort has to see all items first.
  function start(chain, options, callback) {
    [options, callback] = optionsAndCallback(options, callback);
    const answer = answerTo(callback);
    const { pageSize, continuation } = page(options);
    const needsAll = chain.some((stage) => stage.sorts === true);
    let results = [], skip = 0, from = continuation;
    if (needsAll && from !== null) {
      skip = Number(apply(String.prototype.substring, from, [1]));
      from = null;
      if (!(skip >= 0)) {
        refuse(BAD_REQUEST, "The continuation token is not valid.");
      }
    }
    const runStages = (feed) => { for (const stage of chain) feed = stage.run(feed); return feed; };
    function next() {
      const wanted = needsAll || pageSize === -1 ? 1000 : Math.max(1, pageSize - results.length);
      return enqueue("list", { pageSize: wanted, continuation: from }, function (error, reply) {
        if (error !== undefined) {
          return answer(error);
        }
        let options = reply.options;
        try {
          flattenInto(results, [needsAll ? reply.body : runStages(reply.body)], false);
          from = options.continuation ?? null;
          if (from !== null && (needsAll || pageSize === -1 || results.length < pageSize) && next()) {
            return undefined;
          }
          if (needsAll) {
            if (from !== null) {
              refuse(TOO_LARGE, "There are too many documents to sort in the time that is left.");
            }
            const all = runStages(results);
            const end = pageSize === -1 ? all.length : skip + pageSize;
            results = [];
            for (let at = skip; at < end && at < all.length; at++) results[results.length] = all[at];
            if (end < all.length) {
              options = { ...options, continuation: `s${end}` };
            }
          }
        } catch (thrown) {
          return answer(thrown);
        }
        return answer(undefined, results, options);
      });
    }
    return { isAccepted: next() };
  }
  function argumentsOf(given) {
    let at = given.length > 0 && (given[0] === collection || given[0] === underscore || given[0] === undefined) ? 1 : 0;
    const take = () => given[at++];
    return [take, () => given[at]];
  }
  function chained(chain) {
    const link = { isAccepted: true };
    for (const name of keys(stages)) {
      link[name] = function (...given) {
        const [take, peek] = argumentsOf(given);
        const stage = stages[name](take, peek);
        const rest = peek();
        if (typeof rest === "function") {
          refuse(BAD_REQUEST, 'When using "chain", the callback parameter can only be provided on the "value" function.');
        }
        if (rest !== undefined) {
          refuse(BAD_REQUEST, 'When using "chain", options can only be provided on the call to the "value" function');
        }
        return chained([...chain, stage]);
      };
    }
    link.value = function value(options, callback) { return start(chain, options, callback); };
    return link;
  }
  for (const name of keys(stages)) {
    collection[name] = function (...given) {
      const [take, peek] = argumentsOf(given);
      const stage = stages[name](take, peek);
      return start([stage], take(), take());
    };
  }
  collection.chain = function chain() { return chained([]); };
  function spatial(name, sql, count) {
    return function (...given) {
      atLeast(name, count, given.length);
      const parameters = [];
      for (let at = 0; at < count; at++) {
        if (given[at] === null || typeof given[at] !== "object") {
          refuse(BAD_REQUEST, `The value specified by the "geoJSON${count > 1 ? at + 1 : ""}" parameter is not a valid GeoJSON object. Example of valid GeoJSON object: { "type": "Point", "coordinates": [-122.3331, 47.6097] }.`);
        }
        parameters[at] = { name: `@p${at}`, value: given[at] };
      }
      const query = `SELECT VALUE ${sql}(${count > 1 ? "@p0, @p1" : "@p0"})`;
      const answer = parse(native.call("evaluate", stringify({ spec: { query, parameters } })));
      if (answer.error !== null) {
        refuse(answer.error.number, answer.error.body);
      }
      return answer.body[0];
    };
  }
  collection.spatial = {
    distance: spatial("distance", "ST_DISTANCE", 2),
    intersects: spatial("intersects", "ST_INTERSECTS", 2),
    within: spatial("within", "ST_WITHIN", 2),
    isValid: spatial("isValid", "ST_ISVALID", 1),
    isValidDetailed: spatial("isValidDetailed", "ST_ISVALIDDETAILED", 1),
  };

  // ---- What the script sees -------------------------------------------------------------------------------

  const underscore = Object.create(collection);
  underscore.request = request.message;
  const context = {
    getCollection() { return collection; },
    getRequest() { return request.message; },
    abort(reason) {
      const text = describe(reason === undefined ? new Error("The script was aborted.") : reason);
      native.abort(text);
      throw reason;
    },
  };
  if (response !== null) {
    context.getResponse = function getResponse() { return response.message; };
    underscore.response = response.message;
  }
  globalThis.__ = underscore;
  globalThis.getContext = function getContext() { return context; };
  globalThis.console = {
    log(...given) {
      if (!setup.logging) {
        return;
      }
      atLeast("log", 1, given.length);
      if (given.length > 1 && typeof given[0] !== "string") {
        refuse(BAD_REQUEST, "First argument to console.log should be a string containing zero or more substitution strings.");
      }
      if (response !== null) {
        const text = given.length > 1 ? format(given[0], given.slice(1)) : given[0];
        log.appendValue(LOG, text);
        native.log(String(text));
      }
    },
  };
  const log = response && { appendValue: response.message.appendValue };
  globalThis.ErrorCodes = freeze({
    BadRequest: 400, Forbidden: 403, NotFound: 404, Conflict: 409, PreconditionFailed: 412,
    RequestEntityTooLarge: 413, RetryWith: 449, InternalServerError: 500,
  });

  function describe(thrown) {
    let text = "unknown", stack = "", number = 0;
    try {
      text = String(thrown);
      if (thrown !== null && typeof thrown === "object") {
        if (typeof thrown.stack === "string") {
          stack = thrown.stack;
        }
        if (typeof thrown.number === "number") {
          number = thrown.number;
        }
      }
    } catch {
      // An exception that cannot be printed is still an exception.
    }
    return stringify({ text, stack, number });
  }

  return {
    main(script, text) { apply(script, undefined, (text === undefined ? null : parse(text)) ?? []); },
    step,
    describe,
    finish() {
      const body = response === null ? undefined : stringify(response.values.Body);
      const entered = setup.kind === "pre" ? stringify(request.values.Body) : undefined;
      const logged = response === null ? undefined : response.values[LOG];
      return [body, entered, logged === undefined || logged === null ? undefined : String(logged)];
    },
  };
})
