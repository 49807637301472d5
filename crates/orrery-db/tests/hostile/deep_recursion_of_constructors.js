// limit: thrown
class A { constructor() { return new A(); } } new A();
