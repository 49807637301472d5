// limit: thrown
new XMLHttpRequest();
