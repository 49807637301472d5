// limit: thrown
setTimeout(function () {}, 1000000);
