// Built by build.sh: a program with static, public and C++ functions, some of equal name.
static volatile int sink;
extern "C" __declspec(noinline) int open_store(int n) { sink += n; return sink * 3; }
static __declspec(noinline) int hidden(int n) { sink -= n; return open_store(n) + 1; }
namespace store { struct Shelf { int size; __declspec(noinline) int grow(int n); };
int Shelf::grow(int n) { size += hidden(n); return size; } }
int second(int n);
extern "C" int mainCRTStartup(void) { store::Shelf shelf = {3}; return shelf.grow(7) + second(5) + open_store(1); }
extern "C" int _fltused; int _fltused;
