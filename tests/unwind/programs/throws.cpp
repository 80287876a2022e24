// Exceptions, thrown and caught for real: through frames with objects to destroy, caught by type, rethrown, thrown
// from constructors and across calls through pointers and virtual functions.

typedef unsigned long long u64;

#define NOINLINE __attribute__((noinline, noclone))

volatile u64 sink;

NOINLINE u64 leaf(u64 a) { return a * 5 + 3; }

struct Counted {
    u64 value;
    static u64 destroyed;
    NOINLINE explicit Counted(u64 given) : value(leaf(given)) {}
    NOINLINE ~Counted() { destroyed += value; }
};
u64 Counted::destroyed;

struct Base {
    u64 code;
    explicit Base(u64 given) : code(given) {}
    virtual u64 meaning() const { return code; }
    virtual ~Base() {}
};

struct Derived : Base {
    u64 more[4];
    explicit Derived(u64 given) : Base(given), more{given, given + 1, given + 2, given + 3} {}
    u64 meaning() const override { return leaf(more[3]); }
};

NOINLINE u64 throws_number(u64 depth)
{
    Counted kept(depth);
    if (depth == 0)
        throw 42;
    u64 result = throws_number(depth - 1) + leaf(depth);
    return result + kept.value;
}

NOINLINE u64 throws_object(u64 a)
{
    Counted first(a), second(a + 1);
    volatile unsigned char data[600];
    data[a & 511] = 1;
    if (a & 1)
        throw Derived(a);
    if (a & 2)
        throw Base(a);
    return first.value + second.value + data[0];
}

NOINLINE u64 passes_through(u64 a, u64 b)
{
    u64 kept = leaf(a), other = leaf(b);
    u64 third = throws_object(a);
    return kept + other * third;
}

NOINLINE u64 catches_number(u64 depth)
{
    u64 kept = leaf(depth);
    try {
        return throws_number(depth);
    } catch (int number) {
        return kept + leaf(number);
    }
}

NOINLINE u64 catches_object(u64 a)
{
    Counted kept(a);
    try {
        sink = passes_through(a, a + 7);
    } catch (const Derived &caught) {
        return caught.meaning() + kept.value;
    } catch (const Base &caught) {
        return caught.meaning() * 2 + kept.value;
    }
    return leaf(a);
}

NOINLINE u64 rethrows(u64 a)
{
    Counted kept(a);
    try {
        return passes_through(a, 3);
    } catch (...) {
        sink = leaf(kept.value);
        throw;
    }
}

NOINLINE u64 catches_anything(u64 a)
{
    volatile double real = (double)a;
    double kept = real * 1.5, other = real * 2.5, third = real + 3.5;
    u64 result;
    try {
        result = rethrows(a);
    } catch (...) {
        result = leaf(a) + (u64)(kept * other - third);
    }
    return result + (u64)(kept + other);
}

struct Fragile {
    Counted first, second;
    NOINLINE explicit Fragile(u64 a) : first(a), second(throws_object(a)) {}
};

NOINLINE u64 constructs(u64 a)
{
    try {
        Fragile made(a);
        return made.first.value + made.second.value;
    } catch (const Base &caught) {
        return leaf(caught.meaning());
    }
}

struct Acts {
    virtual u64 act(u64 a) = 0;
};
struct ActsByThrowing : Acts {
    NOINLINE u64 act(u64 a) override { return passes_through(a, a); }
};
struct ActsQuietly : Acts {
    NOINLINE u64 act(u64 a) override { return leaf(a) + leaf(a + 1); }
};

NOINLINE u64 through_interface(Acts &acts, u64 a)
{
    Counted kept(a);
    return acts.act(a) + kept.value;
}

NOINLINE u64 allocates_and_catches(u64 size)
{
    volatile unsigned char *data = (volatile unsigned char *)__builtin_alloca(size);
    data[0] = 1;
    ActsByThrowing throwing;
    ActsQuietly quiet;
    u64 total = through_interface(quiet, size);
    try {
        total += through_interface(throwing, size | 1);
    } catch (const Base &caught) {
        volatile unsigned char *more = (volatile unsigned char *)__builtin_alloca(size);
        more[0] = 2;
        total += leaf(caught.meaning());
    }
    return total + data[0];
}

NOINLINE u64 never_throws(u64 a) noexcept
{
    Counted kept(a);
    return catches_object(a) + kept.value;
}

// The start-up code's, which is not there: it would relocate what is imported as data, and nothing is.
extern "C" void _pei386_runtime_relocator() {}

extern "C" u64 start()
{
    u64 total = catches_number(4) + catches_number(0);
    for (u64 i = 0; i < 4; i++)
        total += catches_object(i) + catches_anything(i) + constructs(i);
    total += allocates_and_catches(64) + allocates_and_catches(5000) + never_throws(1) + never_throws(4);
    return total + Counted::destroyed;
}
