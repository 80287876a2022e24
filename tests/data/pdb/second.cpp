// Has a static function with the name of one in app.cpp.
static volatile int other;
static __declspec(noinline) int hidden(int n) { other ^= n; return other * n; }
int second(int n) { return hidden(n) + hidden(n + 1); }
