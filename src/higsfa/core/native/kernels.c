/* The inner loops that numpy would need several passes over memory for: sum_tile and encode_tile, for two types of
   numbers. tile.py calls them and checks what it hands over; nothing is checked here. The package works without them,
   more slowly. */

#include <stdint.h>
#include <string.h>

#if defined(_MSC_VER)
#define ALWAYS_INLINE __forceinline
#define EXPORT __declspec(dllexport)
#define PREFETCH(address) (void)(address)
#else
#define ALWAYS_INLINE inline __attribute__((always_inline))
#define EXPORT
#define PREFETCH(address) __builtin_prefetch(address)
#endif

/* One library for all processors of a kind: the loader takes the version that suits the one it finds. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__linux__) && !defined(ONE_VERSION)
#define CLONES static __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define CLONES static
#endif

/* Every product is rounded before it is added, as numpy does. Other compilers join no more than one statement. */
#if defined(__GNUC__) && !defined(__clang__)
#define AS_NUMPY __attribute__((optimize("fp-contract=off")))
#else
#define AS_NUMPY
#endif

/* Products of small matrices in the widest registers of the processor; elsewhere BLAS computes them. */
#if defined(__GNUC__) && defined(__x86_64__) && !defined(NARROW)
#include <immintrin.h>
#define WIDE __attribute__((target("avx512f")))
#define UNROLLED _Pragma("GCC unroll 8")
#endif

/* Changes whenever the routines or their arguments do. */
EXPORT int64_t higsfa_kernels_version(void) { return 10; }

enum { ROWS, BYTES, SAMPLES, SHORTS }; /* kinds of sources */
enum { SIDE = 16 };            /* of the squares that samples are turned into rows by */
enum { MAX_CHUNK = 2048 };
enum { SEVERAL = 256 };         /* samples whose factors are kept at hand */
enum { FEW = 16 };              /* samples that are added up before a sum in double precision takes them */
enum { MAX_RUNS = 4 };          /* that a sample is joined to */
enum { PANEL = 48 };            /* columns of a symmetric product that BLAS computes at once */
enum { MAX_SIZE = 256, DEPTH = 64 }; /* variables and samples of the products that we compute ourselves */
enum { AHEAD = 4, CACHE_LINE = 64 };
enum { PAIRS, RUNS };           /* kinds of edges */
enum { NO_EXPONENT = -200 };

enum { COPY, POWER, SIGNED_POWER, MAXIMUM, PRODUCT, NORMALIZE };

/* log2(m) = 2/ln 2 (s + s^3/3 + s^5/5 + ...) with s = (m - 1)/(m + 1), and 2^f by its Taylor series, |f| <= 1/2. */

static const float LOG2_F32[] = {
    2.885390082f, 0.9617966939f, 0.5770780164f, 0.4121985831f, 0.320598898f};
static const float EXP2_F32[] = {
    1.0f, 0.6931471806f, 0.240226507f, 0.05550410866f, 0.009618129108f, 0.001333355815f, 0.0001540353039f};
static const double LOG2_F64[] = {
    2.8853900817779268, 0.96179669392597555, 0.57707801635558531, 0.41219858311113239, 0.3205988979753252,
    0.26230818925253879, 0.22195308321368667, 0.19235933878519512, 0.16972882833987804, 0.15186263588304877,
    0.13739952770371081, 0.12545174268599682};
static const double EXP2_F64[] = {
    1, 0.69314718055994529, 0.24022650695910072, 0.055504108664821583, 0.0096181291076284769, 0.0013333558146428443,
    0.00015403530393381609, 1.5252733804059841e-05, 1.321548679014431e-06, 1.01780860092397e-07,
    7.0549116208011234e-09, 4.4455382718708116e-10, 2.5678435993488206e-11, 1.3691488853904128e-12};

#define REAL float
#define UBITS uint32_t
#define IBITS int32_t
#define NAME(name) name##_f32
#define LOG2 LOG2_F32
#define EXP2 EXP2_F32
#define SQRT_HALF 0x3f3504f3u
#define MANTISSA 23
#define ROUNDER 12582912.0f
#define SMALLEST 1.17549435e-38f
#define LARGEST 3.40282347e+38f
#define VECTOR __m512
#define MASK __mmask16
#define LANES 16
#define OF(operation) _mm512_##operation##_ps
#include "kernels.h"
#undef REAL
#undef UBITS
#undef IBITS
#undef NAME
#undef LOG2
#undef EXP2
#undef SQRT_HALF
#undef MANTISSA
#undef ROUNDER
#undef SMALLEST
#undef LARGEST
#undef VECTOR
#undef MASK
#undef LANES
#undef OF

#define REAL double
#define UBITS uint64_t
#define IBITS int64_t
#define NAME(name) name##_f64
#define LOG2 LOG2_F64
#define EXP2 EXP2_F64
#define SQRT_HALF 0x3fe6a09e667f3bcdu
#define MANTISSA 52
#define ROUNDER 6755399441055744.0
#define SMALLEST 2.2250738585072014e-308
#define LARGEST 1.7976931348623157e+308
#define VECTOR __m512d
#define MASK __mmask8
#define LANES 8
#define OF(operation) _mm512_##operation##_pd
#include "kernels.h"

/* The exponent of a number that is not negative: x < 2^e <= 2 x. Small numbers have none. */
static ALWAYS_INLINE int exponent_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof x);
    bits &= 0x7fffffffu; /* of -0, too */
    return bits >> 23 ? (int)(bits >> 23) - 126 : NO_EXPONENT;
}

static ALWAYS_INLINE float power_of_two(int e)
{
    uint32_t bits = (uint32_t)(e + 127) << 23;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

CLONES void shorten_row(const float *x, int64_t n, uint16_t *restrict codes, float *step, float *first)
{
    float low = x[0], high = x[0], finite = 0;
#pragma omp simd reduction(min : low) reduction(max : high) reduction(+ : finite)
    for (int64_t k = 0; k < n; k++) {
        low = x[k] < low ? x[k] : low;
        high = x[k] > high ? x[k] : high;
        finite += x[k] - x[k];
    }
    if (finite != 0) {
        memset(codes, 0, n * sizeof(uint16_t));
        *step = *first = finite;
        return;
    }
    int e = exponent_of(high / 2 - low / 2) + 1 - 16, also = exponent_of(high > -low ? high : -low) - 24;
    e = e > also ? e : also;
    e = e > -126 ? e : -126;
    float factor = power_of_two(-e), from = (float)(((double)(low * factor) + 6755399441055744.0) - 6755399441055744.0);
    for (int64_t k = 0; k < n; k++) {
        float code = (x[k] * factor - from + 12582912.0f) - 12582912.0f;
        code = code < 0 ? 0 : code > 65535 ? 65535 : code;
        codes[k] = (uint16_t)(int32_t)code;
    }
    *step = power_of_two(e);
    *first = from;
}

/* Rows x, (n_rows, n), as whole numbers of 16 bits: x is nearly (codes + first) step, with a step and a first number for each
   row. A row with a number that is not finite has a step of nan. */
EXPORT void shorten_f32(const float *x, int64_t x_stride, int64_t n_rows, int64_t n, uint16_t *codes, int64_t stride,
                        float *step, float *first)
{
    for (int64_t r = 0; r < n_rows; r++)
        shorten_row(x + r * x_stride, n, codes + r * stride, step + r, first + r);
}

/* Of a position in fractions of a pixel, from 0 to the last one: the pixel, and how far the position lies beyond it. */
static ALWAYS_INLINE AS_NUMPY int32_t pixel_of(int32_t position, int32_t last, int bits, float *beyond)
{
    position = position < 0 ? 0 : position > last ? last : position;
    *beyond = (float)(position & ((1 << bits) - 1)) * (1.0f / (float)(1 << bits));
    return position >> bits;
}

/* Six times the cubic B-spline at -1, 0, 1 and 2 minus an offset. */
static ALWAYS_INLINE AS_NUMPY void spline_weights(float offset, float *w)
{
    float rest = 1.0f - offset, square = offset * offset;
    float a = rest * rest, b = 3.0f * offset;
    w[0] = a * rest;
    b = b - 6.0f;
    b = b * square;
    w[1] = b + 4.0f;
    w[3] = square * offset;
    w[2] = 6.0f - w[0];
    w[2] = w[2] - w[1];
    w[2] = w[2] - w[3];
}

CLONES AS_NUMPY void warp_row(const float *coefficients, int32_t stride, int64_t width, const int32_t *x, const int32_t *y,
                       int32_t x_row, int32_t y_row, int32_t last_x, int32_t last_y, int bits, float *restrict out)
{
    for (int64_t c = 0; c < width; c++) {
        float right, down, rights[4], downs[4], sum = 0;
        int32_t at = pixel_of(x[c] + x_row, last_x, bits, &right);
        at += stride * pixel_of(y[c] + y_row, last_y, bits, &down);
        spline_weights(right, rights);
        spline_weights(down, downs);
        for (int i = 0; i < 4; i++) {
            float line = coefficients[at + i * stride] * rights[0];
            for (int j = 1; j < 4; j++) {
                float term = coefficients[at + i * stride + j] * rights[j];
                line = line + term;
            }
            line = line * downs[i];
            sum = i ? sum + line : line;
        }
        out[c] = sum;
    }
}

/* Grey values of n images between pixels, from the coefficients of cubic splines, `size` of them for each image. Pixel
   (r, c) is read from x = x_columns[c] + x_rows[r] and y likewise, in fractions of a pixel of so many bits. */
EXPORT void warp_f32(const float *coefficients, int64_t size, int64_t stride, int64_t n, int64_t height, int64_t width,
                     const int32_t *x_columns, const int32_t *x_rows, const int32_t *y_columns, const int32_t *y_rows,
                     int64_t bits, float *out)
{
    int32_t last_x = (int32_t)((width - 1) << bits), last_y = (int32_t)((height - 1) << bits);
    for (int64_t k = 0; k < n; k++)
        for (int64_t r = 0; r < height; r++)
            warp_row(coefficients + k * size, (int32_t)stride, width, x_columns + k * width, y_columns + k * width,
                     x_rows[k * height + r], y_rows[k * height + r], last_x, last_y, (int)bits,
                     out + (k * height + r) * width);
}
