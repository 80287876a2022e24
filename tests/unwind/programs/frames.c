/* Functions of every shape that a compiler gives a frame to. `start` calls them all; each build of this file
   (optimisation, frame pointer) is another set of prologues and epilogues. Nothing here is meant to be useful. */

typedef unsigned long long u64;
typedef unsigned int u32;

#define NOINLINE __attribute__((noinline, noclone))

volatile u64 sink;
volatile double real_sink;

NOINLINE u64 leaf(u64 a) { return a * 3 + 1; }

NOINLINE u64 leaf_of_many(u64 a, u64 b, u64 c, u64 d, u64 e, u64 f) { return a ^ b + c ^ d - e ^ f; }

NOINLINE u64 calls_once(u64 a) { return leaf(a) + 1; }

NOINLINE u64 keeps_values(u64 a, u64 b, u64 c, u64 d)
{
    u64 w = leaf(a), x = leaf(b), y = leaf(c), z = leaf(d);
    u64 v = leaf(w ^ z), u = leaf(x ^ y), t = leaf(a + w), s = leaf(b + x);
    return a + b + c + d + w * x + y * z + u + v + s * t;
}

NOINLINE u64 recursive(u64 n, u64 carried)
{
    if (n == 0)
        return leaf(carried);
    return recursive(n - 1, carried + n) + leaf(n);
}

NOINLINE u64 tail_called(u64 n) { return n == 0 ? leaf(7) : leaf(n) * 2; }

NOINLINE u64 tail_calls(u64 n)
{
    u64 kept = leaf(n);
    sink = kept;
    return tail_called(kept);
}

NOINLINE u64 loops(const u32 *data, u64 count)
{
    u64 total = 0;
    for (u64 i = 0; i < count; i++)
        total += data[i] % 3 ? leaf(data[i]) : calls_once(data[i]);
    return total;
}

NOINLINE u64 fills(volatile unsigned char *data, u64 count)
{
    u64 total = 0;
    for (u64 i = 0; i < count; i += 509) {
        data[i] = (unsigned char)i;
        total += data[i];
    }
    return leaf(total);
}

#define LOCAL_OF(name, size)                                                                                   \
    NOINLINE u64 name(u64 a)                                                                                   \
    {                                                                                                          \
        volatile unsigned char data[size];                                                                     \
        data[0] = 1;                                                                                           \
        data[(size) - 1] = 2;                                                                                  \
        return fills(data, size) + leaf(a) + a;                                                                \
    }

LOCAL_OF(local_tiny, 8)
LOCAL_OF(local_small, 100)
LOCAL_OF(local_of_128, 0x80)
LOCAL_OF(local_medium, 1000)
LOCAL_OF(local_page, 0x1000)
LOCAL_OF(local_pages, 0x3456)
LOCAL_OF(local_large, 0x7fff0)
LOCAL_OF(local_huge, 0x90000)

NOINLINE u64 allocates(u64 size, u64 a, u64 b)
{
    volatile unsigned char *data = __builtin_alloca(size);
    data[0] = 3;
    u64 first = fills(data, size);
    return first + leaf(a) * b + leaf(b);
}

NOINLINE u64 allocates_often(u64 rounds)
{
    u64 total = 0;
    for (u64 i = 1; i <= rounds; i++) {
        volatile unsigned char data[i * 64];
        data[0] = (unsigned char)i;
        total += fills(data, i * 64);
    }
    return total;
}

NOINLINE u64 allocates_aligned(u64 a)
{
    volatile unsigned char data[200] __attribute__((aligned(64)));
    data[0] = (unsigned char)a;
    return fills(data, 200) + leaf(a);
}

NOINLINE double halves(double a) { return a * 0.5 + (double)leaf(3); }

NOINLINE double keeps_reals(double a, double b, double c)
{
    double d = halves(a), e = halves(b), f = halves(c);
    double g = halves(d + e), h = halves(e + f), i = halves(f + d);
    real_sink = g;
    double j = halves(g * h), k = halves(h * i);
    return a + b + c + d * e + f * g + h * i + j * k;
}

NOINLINE double keeps_reals_in_a_large_frame(double a, double b)
{
    volatile unsigned char data[0x120000];
    double c = halves(a), d = halves(b), e = halves(c + d);
    sink = fills(data, sizeof data);
    double f = halves(e), g = halves(f + c);
    return a * b + c * d + e * f + g;
}

NOINLINE double both_kinds(double a, u64 b, double c, u64 d, u64 e)
{
    u64 x = leaf(b), y = leaf(d);
    double p = halves(a), q = halves(c);
    u64 z = leaf(e + x);
    double r = halves(p + q);
    return p * (double)x + q * (double)y + r * (double)z + a + c + (double)(b + d + e);
}

NOINLINE u64 variable(int count, ...)
{
    __builtin_va_list list;
    __builtin_va_start(list, count);
    u64 total = 0;
    for (int i = 0; i < count; i++)
        total += leaf(__builtin_va_arg(list, u32));
    __builtin_va_end(list);
    return total;
}

struct wide {
    u64 values[9];
};

NOINLINE struct wide makes_wide(u64 a)
{
    struct wide made;
    for (int i = 0; i < 9; i++)
        made.values[i] = leaf(a + i);
    return made;
}

NOINLINE u64 takes_wide(struct wide given) { return given.values[1] + leaf(given.values[8]); }

NOINLINE u64 passes_wide(u64 a)
{
    struct wide made = makes_wide(a);
    return takes_wide(made) + takes_wide(makes_wide(a + 1));
}

NOINLINE u64 chooses(u32 kind, u64 a)
{
    switch (kind) {
    case 0: return leaf(a);
    case 1: return calls_once(a) + 1;
    case 2: return keeps_values(a, 2, 3, 4);
    case 3: sink = a; return leaf(a + 3) ^ leaf(a);
    case 4: return local_small(a);
    case 5: return recursive(3, a);
    case 6: return tail_calls(a);
    default: return 0;
    }
}

__attribute__((cold, noinline)) u64 unlikely(u64 a)
{
    sink = a;
    return leaf(a) + leaf(a + 1);
}

NOINLINE u64 seldom(u64 a, u64 b)
{
    u64 kept = leaf(a);
    if (__builtin_expect(b == 13, 0)) {
        sink = unlikely(a) + unlikely(b);
        kept += unlikely(sink);
    }
    return kept + leaf(b);
}

NOINLINE u64 early_out(u64 a, u64 b)
{
    if (a == 0)
        return b;
    u64 kept = leaf(a), other = leaf(b);
    u64 third = calls_once(kept + other);
    return kept * other + third;
}

typedef u64 (*function)(u64);

NOINLINE u64 through_pointer(function called, u64 a)
{
    u64 first = called(a);
    return first + called(first) * 2;
}

NOINLINE u64 tail_through_pointer(function called, u64 a)
{
    sink = leaf(a);
    return called(a + 1);
}

NOINLINE u64 nested_calls(u64 a)
{
    return keeps_values(calls_once(leaf(a)), recursive(2, leaf(a)), through_pointer(calls_once, a), tail_calls(a));
}

NOINLINE u64 sorts(u32 *data, int count)
{
    if (count < 2)
        return 1;
    u32 pivot = data[count / 2];
    int i = 0, j = count - 1;
    while (i <= j) {
        while (data[i] < pivot)
            i++;
        while (data[j] > pivot)
            j--;
        if (i <= j) {
            u32 swapped = data[i];
            data[i++] = data[j];
            data[j--] = swapped;
        }
    }
    return sorts(data, j + 1) + sorts(data + i, count - i) + leaf(count);
}

NOINLINE u64 prints(char *out, u64 value, u32 base)
{
    char digits[65];
    int length = 0;
    do {
        u32 digit = (u32)(value % base);
        digits[length++] = (char)(digit < 10 ? '0' + digit : 'a' + digit - 10);
        value /= base;
    } while (value);
    for (int i = 0; i < length; i++)
        out[i] = digits[length - 1 - i];
    out[length] = 0;
    return leaf(length);
}

NOINLINE u64 mixes(u64 seed)
{
    u32 state[16];
    for (int i = 0; i < 16; i++)
        state[i] = (u32)(seed >> i) + (u32)leaf(i);
    for (int round = 0; round < 4; round++)
        for (int i = 0; i < 16; i++) {
            u32 a = state[i], b = state[(i + 5) & 15], c = state[(i + 11) & 15];
            state[i] = (a << 7 | a >> 25) + (b ^ c) + (u32)leaf(round);
        }
    u64 total = 0;
    for (int i = 0; i < 16; i++)
        total = total * 31 + state[i];
    return total;
}

NOINLINE u64 everything(u64 seed)
{
    static u32 numbers[40];
    static char text[80];
    for (int i = 0; i < 40; i++)
        numbers[i] = (u32)(seed * 2654435761u * (i + 1)) >> 8;
    u64 total = leaf_of_many(1, 2, 3, 4, 5, 6) + calls_once(2) + keeps_values(1, 2, 3, 4) + recursive(5, 1);
    total += tail_calls(3) + loops(numbers, 9) + local_tiny(1) + local_small(2) + local_of_128(2) + local_medium(3);
    total += local_page(4) + local_pages(5) + local_large(6) + local_huge(7);
    total += allocates(40, 1, 2) + allocates(0x2345, 3, 4) + allocates_often(5) + allocates_aligned(9);
    total += (u64)keeps_reals(1.5, 2.5, 3.5) + (u64)keeps_reals_in_a_large_frame(1.25, 2.5);
    total += (u64)both_kinds(1.5, 2, 2.5, 3, 4) + variable(5, 1, 2, 3, 4, 5) + passes_wide(4);
    for (u32 kind = 0; kind < 8; kind++)
        total += chooses(kind, total & 0xff);
    total += seldom(1, 2) + seldom(1, 13) + early_out(0, 5) + early_out(6, 7);
    total += through_pointer(leaf, 4) + tail_through_pointer(calls_once, 5) + nested_calls(3);
    total += sorts(numbers, 40) + prints(text, total, 10) + prints(text, total, 16) + mixes(total);
    return total;
}

u64 start(void) { return everything(12345); }
