// limit: thrown
this.constructor.constructor('return process')().exit();
