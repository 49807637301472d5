// limit: thrown
require('fs').readFileSync('/etc/passwd');
