/* The loops of _kernels.c for one floating-point type: REAL, with BITS an integer of the same size.
   Arrays are feature-major: one row a variable, samples side by side; strides count elements. */

#define POLYNOMIAL(coefficients, x) NAME(polynomial)(coefficients, (int)(sizeof coefficients / sizeof(REAL)), x)

static ALWAYS_INLINE REAL NAME(polynomial)(const REAL *coefficients, int n, REAL x)
{
    REAL sum = coefficients[n - 1];
    for (int k = n - 2; k >= 0; k--)
        sum = sum * x + coefficients[k];
    return sum;
}

/* |x|^p for 0 < p < 1 as 2^(p log2 |x|). inf and nan stay what they are; numbers too small for a full mantissa give 0. */
static ALWAYS_INLINE REAL NAME(power)(REAL x, REAL p)
{
    REAL a = x < 0 ? -x : x;
    UBITS bits, mantissa, scaled;
    memcpy(&bits, &a, sizeof a);
    /* a = m 2^e with m between sqrt(1/2) and sqrt(2) */
    IBITS e = (IBITS)(bits - SQRT_HALF) >> MANTISSA;
    mantissa = bits - ((UBITS)e << MANTISSA);
    REAL m;
    memcpy(&m, &mantissa, sizeof m);
    REAL s = (m - 1) / (m + 1);
    REAL y = p * ((REAL)e + s * POLYNOMIAL(LOG2, s * s));
    REAL whole = (y + ROUNDER) - ROUNDER;
    REAL power = POLYNOMIAL(EXP2, y - whole);
    memcpy(&scaled, &power, sizeof power);
    scaled += (UBITS)(IBITS)whole << MANTISSA;
    REAL result;
    memcpy(&result, &scaled, sizeof result);
    return a < SMALLEST ? 0 : a <= LARGEST ? result : a;
}

/* Divide the products of m inputs, i <= j, by 1 + the sum of their squares, which are among them. */
static ALWAYS_INLINE void NAME(normalize)(REAL *z, int64_t stride, int64_t m, int64_t n)
{
    REAL factor[SEVERAL];
    for (int64_t start = 0; start < n; start += SEVERAL) {
        int64_t some = n - start < SEVERAL ? n - start : SEVERAL;
        for (int64_t k = 0; k < some; k++)
            factor[k] = 1;
        for (int64_t i = 0, row = 0; i < m; row += m - i++)
            for (int64_t k = 0; k < some; k++)
                factor[k] += z[row * stride + start + k];
        for (int64_t k = 0; k < some; k++)
            factor[k] = 1 / factor[k];
        for (int64_t row = 0; row < m * (m + 1) / 2; row++)
            for (int64_t k = 0; k < some; k++)
                z[row * stride + start + k] *= factor[k];
    }
}

/* Rows of z, one after the other: row r is made of inputs first[r] and second[r] as operation[r] says. Those of a single
   sample lie side by side, and alike[r] of them, from r on, are made as one: each of the next inputs, or, if they are
   products, of the same first input and the next second ones. */
CLONES void NAME(expand)(const REAL *x, int64_t x_stride, int64_t n, const int32_t *operation, const int32_t *first,
                         const int32_t *second, const int32_t *row, const int32_t *alike, const REAL *exponent,
                         int64_t n_rows, REAL *z, int64_t z_stride)
{
    int dense = n == 1 && x_stride == 1 && z_stride == 1;
    for (int64_t r = 0, m; r < n_rows; r += m) {
        m = dense ? alike[r] : 1;
        const REAL *a = x + first[r] * x_stride, *b = x + second[r] * x_stride;
        REAL *restrict out = z + row[r] * z_stride, p = exponent[r];
        int64_t all = m * n;
        switch (operation[r]) {
        case COPY:
            memcpy(out, a, all * sizeof(REAL));
            break;
        case POWER:
            for (int64_t k = 0; k < all; k++)
                out[k] = NAME(power)(a[k], p);
            break;
        case SIGNED_POWER:
            for (int64_t k = 0; k < all; k++) {
                REAL size = NAME(power)(a[k], p);
                out[k] = a[k] < 0 ? -size : size;
            }
            break;
        case MAXIMUM: /* of a number and nan, nan */
            for (int64_t k = 0; k < all; k++)
                out[k] = (a[k] > b[k]) | (a[k] != a[k]) ? a[k] : b[k];
            break;
        case PRODUCT:
            if (m > 1)
                for (int64_t k = 0; k < m; k++)
                    out[k] = a[0] * b[k];
            else
                for (int64_t k = 0; k < n; k++)
                    out[k] = a[k] * b[k];
            break;
        case NORMALIZE: /* rows that were made before */
            NAME(normalize)(out, z_stride, (int64_t)p, n);
            break;
        }
    }
}

/* Widen low[r] .. high[r] by the samples of row r; nan is passed over. */
CLONES void NAME(widen)(const REAL *x, int64_t x_stride, int64_t n_rows, int64_t n, REAL *low, REAL *high)
{
    for (int64_t r = 0; r < n_rows; r++) {
        const REAL *a = x + r * x_stride;
        REAL lo = low[r], hi = high[r];
#pragma omp simd reduction(min : lo) reduction(max : hi)
        for (int64_t k = 0; k < n; k++) {
            lo = a[k] < lo ? a[k] : lo;
            hi = a[k] > hi ? a[k] : hi;
        }
        low[r] = lo;
        high[r] = hi;
    }
}

/* Add to sums[r, s] what row r holds from starts[s] up to the next start. */
CLONES void NAME(add_runs)(const REAL *z, int64_t z_stride, int64_t n_rows, int64_t n, const int64_t *starts,
                           int64_t n_runs, double *sums, int64_t sums_stride)
{
    for (int64_t r = 0; r < n_rows; r++)
        for (int64_t s = 0; s < n_runs; s++) {
            const REAL *a = z + r * z_stride;
            int64_t stop = s + 1 < n_runs ? starts[s + 1] : n;
            REAL sum = 0;
#pragma omp simd reduction(+ : sum)
            for (int64_t k = starts[s]; k < stop; k++)
                sum += a[k];
            sums[r * sums_stride + s] += sum;
        }
}

/* The same for samples one after the other, few of them in single precision; `sum` is room for n_rows numbers. */
CLONES void NAME(add_sample_runs)(const REAL *z, int64_t z_stride, int64_t n_rows, int64_t n, const int64_t *starts,
                                  int64_t n_runs, double *sums, int64_t sums_stride, REAL *restrict sum)
{
    for (int64_t s = 0; s < n_runs; s++) {
        int64_t stop = s + 1 < n_runs ? starts[s + 1] : n;
        for (int64_t k = starts[s]; k < stop;) {
            int64_t end = k + FEW < stop ? k + FEW : stop;
            memset(sum, 0, n_rows * sizeof(REAL));
            for (; k < end; k++)
                for (int64_t r = 0; r < n_rows; r++)
                    sum[r] += z[k * z_stride + r];
            for (int64_t r = 0; r < n_rows; r++)
                sums[r * sums_stride + s] += sum[r];
        }
    }
}

/* x = source - center, clipped to low .. high; row r of x is row rows[r] of the source. Pointers may be null. VALUE is the
   number that the source holds for `stored` in row `from`. */
#define LOAD(KIND, SOURCE, VALUE, ...)                                                                                 \
    CLONES void NAME(KIND)(const SOURCE *source, int64_t stride, const int64_t *rows, int64_t n_rows, int64_t n,        \
                           const REAL *center, const REAL *low, const REAL *high, REAL *x, int64_t x_stride             \
                           __VA_ARGS__)                                                                                \
    {                                                                                                                  \
        if (n == 1 && x_stride == 1) {                                                                                 \
            for (int64_t r = 0; r < n_rows; r++) {                                                                     \
                int64_t from = rows ? rows[r] : r;                                                                     \
                REAL stored = (REAL)source[from * stride], value = VALUE - (center ? center[r] : 0);                   \
                value = low && value < low[r] ? low[r] : value;                                                        \
                x[r] = low && value > high[r] ? high[r] : value;                                                       \
            }                                                                                                          \
            return;                                                                                                    \
        }                                                                                                              \
        for (int64_t r = 0; r < n_rows; r++) {                                                                         \
            int64_t from = rows ? rows[r] : r;                                                                         \
            const SOURCE *a = source + from * stride;                                                                  \
            REAL *out = x + r * x_stride, c = center ? center[r] : 0;                                                  \
            if (low) {                                                                                                 \
                REAL lo = low[r], hi = high[r];                                                                        \
                _Pragma("omp simd") for (int64_t k = 0; k < n; k++)                                                    \
                {                                                                                                      \
                    REAL stored = (REAL)a[k], value = VALUE - c;                                                       \
                    value = value < lo ? lo : value;                                                                   \
                    out[k] = value > hi ? hi : value;                                                                  \
                }                                                                                                      \
            } else                                                                                                     \
                _Pragma("omp simd") for (int64_t k = 0; k < n; k++)                                                    \
                {                                                                                                      \
                    REAL stored = (REAL)a[k];                                                                          \
                    out[k] = VALUE - c;                                                                                \
                }                                                                                                      \
        }                                                                                                              \
    }
LOAD(load, REAL, stored, )
LOAD(load_bytes, uint8_t, stored, )
/* Sums and products with steps are exact: steps are powers of two, and firsts whole numbers. */
LOAD(load_shorts, uint16_t, (stored + first[from]) * step[from], , const float *step, const float *first)
#undef LOAD

/* The same from samples: column k of x is sample samples[k], whose variables follow each other. */
CLONES void NAME(load_samples)(const REAL *source, int64_t stride, const int64_t *samples, int64_t n_rows, int64_t n,
                               const REAL *center, const REAL *low, const REAL *high, REAL *x, int64_t x_stride)
{
    for (int64_t k0 = 0; k0 < n; k0 += SIDE)
        for (int64_t r0 = 0; r0 < n_rows; r0 += SIDE) {
            int64_t k1 = k0 + SIDE < n ? k0 + SIDE : n, r1 = r0 + SIDE < n_rows ? r0 + SIDE : n_rows;
            for (int64_t r = r0; r < r1; r++)
                for (int64_t k = k0; k < k1; k++)
                    x[r * x_stride + k] = source[samples[k] * stride + r];
        }
    if (center || low)
        NAME(load)(x, x_stride, 0, n_rows, n, center, low, high, x, x_stride);
}

/* Samples one after the other, minus a center and a shift, each of which may be null. They may lie anywhere, so memory
   is told beforehand which come next. */
CLONES void NAME(take_samples)(const REAL *source, int64_t stride, const int64_t *samples, int64_t n_rows, int64_t n,
                               const REAL *center, const REAL *shift, REAL *restrict z)
{
    for (int64_t k = 0; k < n; k++, z += n_rows) {
        const char *next = (const char *)(source + samples[k + AHEAD < n ? k + AHEAD : n - 1] * stride);
        for (int64_t line = 0; line < n_rows * (int64_t)sizeof(REAL); line += CACHE_LINE)
            PREFETCH(next + line);
        const REAL *own = source + samples[k] * stride, *minus = center ? center : shift;
        if (minus)
            for (int64_t r = 0; r < n_rows; r++)
                z[r] = own[r] - minus[r];
        else
            memcpy(z, own, n_rows * sizeof(REAL));
        if (center && shift)
            for (int64_t r = 0; r < n_rows; r++)
                z[r] -= shift[r];
    }
}

/* Rows turned into samples one after the other. */
CLONES void NAME(turn)(const REAL *z, int64_t z_stride, int64_t n_rows, int64_t n, REAL *restrict out)
{
    for (int64_t k0 = 0; k0 < n; k0 += SIDE)
        for (int64_t r0 = 0; r0 < n_rows; r0 += SIDE) {
            int64_t k1 = k0 + SIDE < n ? k0 + SIDE : n, r1 = r0 + SIDE < n_rows ? r0 + SIDE : n_rows;
            for (int64_t k = k0; k < k1; k++)
                for (int64_t r = r0; r < r1; r++)
                    out[k * n_rows + r] = z[r * z_stride + k];
        }
}

/* out = z weighted sample by sample, of n lines of m numbers: samples, or else rows. */
CLONES void NAME(weight)(const REAL *z, int64_t z_stride, int64_t n, int64_t m, const REAL *w, int by_samples,
                         REAL *restrict out, int64_t out_stride)
{
    for (int64_t k = 0; k < n; k++)
        for (int64_t r = 0; r < m; r++)
            out[k * out_stride + r] = z[k * z_stride + r] * (by_samples ? w[k] : w[r]);
}

/* Differences of the samples at positions i and j, counted from a, times their weights if there are any. */
CLONES void NAME(subtract)(const REAL *z, int64_t z_stride, int64_t n_rows, int64_t a, int64_t n, const int64_t *i,
                           const int64_t *j, const REAL *w, REAL *restrict out)
{
    for (int64_t k = 0; k < n; k++, out += n_rows) {
        const REAL *from = z + (i[k] - a) * z_stride, *to = z + (j[k] - a) * z_stride, factor = w ? w[k] : 1;
        for (int64_t r = 0; r < n_rows; r++)
            out[r] = (to[r] - from[r]) * factor;
    }
}

/* The sum of z_p - z_q over all edges between p and q, for every sample p from a up to c, where the samples from a up to
   b are joined to runs first .. last (n_runs, stride), all behind them and none further than reach. What a sample gets
   from those before it enters `coming` where their run begins, and leaves where it ends; what it gets from those behind
   it moves along with its run. A number behind each sum counts what it is made of. room: (reach + n_runs + 6) (T + 1). */
CLONES void NAME(pull)(const REAL *z, int64_t z_stride, int64_t T, int64_t a, int64_t b, int64_t c, int64_t n_runs,
                       const int64_t *first, const int64_t *last, int64_t stride, int64_t reach, REAL *restrict out,
                       double *restrict room)
{
    int64_t size = reach + 2, width = T + 1, begin[MAX_RUNS], end[MAX_RUNS];
    double *coming = room, *back = room + size * width, *zero = back + width, *lost = zero + width;
    double *also_lost = lost + width, *ahead = also_lost + width;
    memset(room, 0, (size + 4 + n_runs) * width * sizeof(double));
    for (int64_t r = 0; r < n_runs; r++)
        begin[r] = end[r] = a;
    for (int64_t p = a; p < c; p++, out += T) {
        const REAL *own = z + (p - a) * z_stride;
        double *here = coming + p % size * width;
        for (int64_t r = 0; r < n_runs; r++) {
            int64_t lo = p < b ? first[r * stride + p] : 0, hi = p < b ? last[r * stride + p] + 1 : 0;
            const REAL *next = (const REAL *)zero, *gone_by = next;
            double *sum = zero, *in = lost, *gone = also_lost, degree = 0;
            if (lo < hi) {
                sum = ahead + r * width, in = coming + lo % size * width, gone = coming + hi % size * width;
                if (lo < begin[r] || lo >= end[r] || hi < end[r]) {
                    memset(sum, 0, T * sizeof(double));
                    begin[r] = end[r] = lo;
                }
                for (; end[r] < hi - 1; end[r]++)
                    for (int64_t t = 0; t < T; t++)
                        sum[t] += z[(end[r] - a) * z_stride + t];
                for (; begin[r] < lo - 1; begin[r]++)
                    for (int64_t t = 0; t < T; t++)
                        sum[t] -= z[(begin[r] - a) * z_stride + t];
                next = end[r] < hi ? z + (end[r]++ - a) * z_stride : next;
                gone_by = begin[r] < lo ? z + (begin[r]++ - a) * z_stride : gone_by;
                degree = (double)(hi - lo);
                in[T] += 1;
                gone[T] -= 1;
            } else if (r)
                continue;
            if (r == 0) {
                degree += back[T] += here[T];
                here[T] = 0;
            }
            double *from = r ? zero : here, *known = r ? zero : back;
#pragma omp simd
            for (int64_t t = 0; t < T; t++) {
                double value = own[t], before = known[t] + from[t], behind = sum[t] + ((double)next[t] - (double)gone_by[t]);
                known[t] = before;
                from[t] = 0;
                sum[t] = behind;
                out[t] = (REAL)(degree * value - before - behind + (r ? (double)out[t] : 0));
                in[t] += value;
                gone[t] -= value;
            }
        }
    }
}

typedef void (*NAME(Syrk))(char *, char *, int *, int *, REAL *, const REAL *, int *, REAL *, REAL *, int *);
typedef void (*NAME(Gemm))(char *, char *, int *, int *, int *, REAL *, const REAL *, int *, const REAL *, int *, REAL *,
                           REAL *, int *);
typedef void (*NAME(Axpy))(int *, REAL *, const REAL *, int *, REAL *, int *);

/* From raw input to expanded variables: what is fixed for a node. Fields as in tile.py. */
typedef struct {
    int64_t n_raw, n_inputs, n_variables, n_operations;
    const REAL *projection, *center, *low, *high;
    const int32_t *operation, *first, *second, *row, *alike;
    const REAL *exponent, *shift;
    NAME(Syrk) syrk;
    NAME(Gemm) gemm;
    NAME(Axpy) axpy;
} NAME(Front);

/* Where raw input lies: rows of an array (of REAL, of bytes, or of shorts with a step and a first number a row), or samples
   of one. */
typedef struct {
    const void *data;
    int64_t stride, kind;
    const int64_t *which;
    const float *step, *first;
} NAME(Source);

#ifdef WIDE
/* C += A^T B for some columns of A, a_step apart, and some vectors of columns of B, of which the last holds those that
   `last` says. Sums over the n rows of A and B stay in registers. */
static ALWAYS_INLINE WIDE void NAME(multiply_block)(const int n_rows, const int n_vectors, MASK last, int64_t n,
                                                    const REAL *A, int64_t a_stride, int64_t a_step, const REAL *B,
                                                    int64_t b_stride, REAL *C, int64_t c_stride)
{
    VECTOR sum[8][3], b[3];
    UNROLLED for (int r = 0; r < n_rows; r++)
        UNROLLED for (int v = 0; v < n_vectors; v++)
            sum[r][v] = OF(setzero)();
    for (int64_t k = 0; k < n; k++, A += a_stride, B += b_stride) {
        UNROLLED for (int v = 0; v < n_vectors; v++)
            b[v] = v + 1 < n_vectors ? OF(loadu)(B + v * LANES) : OF(maskz_loadu)(last, B + v * LANES);
        UNROLLED for (int r = 0; r < n_rows; r++) {
            VECTOR a = OF(set1)(A[r * a_step]);
            UNROLLED for (int v = 0; v < n_vectors; v++)
                sum[r][v] = OF(fmadd)(a, b[v], sum[r][v]);
        }
    }
    UNROLLED for (int r = 0; r < n_rows; r++)
        UNROLLED for (int v = 0; v < n_vectors; v++) {
            REAL *to = C + r * c_stride + v * LANES;
            MASK all = v + 1 < n_vectors ? (MASK)-1 : last;
            OF(mask_storeu)(to, all, OF(add)(OF(maskz_loadu)(all, to), sum[r][v]));
        }
}

/* The same for the first vectors of the n_columns of B. */
static ALWAYS_INLINE WIDE void NAME(multiply_rows)(const int n_rows, int64_t n_vectors, int64_t n_columns, int64_t n,
                                                   const REAL *A, int64_t a_stride, int64_t a_step, const REAL *B,
                                                   int64_t b_stride, REAL *C, int64_t c_stride)
{
    for (int64_t v = 0; v < n_vectors; v += 3, B += 3 * LANES, C += 3 * LANES) {
        int64_t left = n_vectors - v < 3 ? n_vectors - v : 3, behind = n_columns - (v + left) * LANES;
        MASK last = behind >= 0 ? (MASK)-1 : (MASK)((MASK)-1 >> -behind);
        if (left == 3)
            NAME(multiply_block)(n_rows, 3, last, n, A, a_stride, a_step, B, b_stride, C, c_stride);
        else if (left == 2)
            NAME(multiply_block)(n_rows, 2, last, n, A, a_stride, a_step, B, b_stride, C, c_stride);
        else
            NAME(multiply_block)(n_rows, 1, last, n, A, a_stride, a_step, B, b_stride, C, c_stride);
    }
}

/* C += A B, by rows: A (m, k), its rows side by side. */
static WIDE void NAME(multiply_few)(int64_t m, int64_t k, const REAL *A, const REAL *B, int64_t b_stride, int64_t n,
                                    REAL *C, int64_t c_stride)
{
    int64_t n_vectors = (n + LANES - 1) / LANES, r = 0;
    for (; r + 8 <= m; r += 8)
        NAME(multiply_rows)(8, n_vectors, n, k, A + r * k, 1, k, B, b_stride, C + r * c_stride, c_stride);
    for (; r + 4 <= m; r += 4)
        NAME(multiply_rows)(4, n_vectors, n, k, A + r * k, 1, k, B, b_stride, C + r * c_stride, c_stride);
    for (; r < m; r++)
        NAME(multiply_rows)(1, n_vectors, n, k, A + r * k, 1, k, B, b_stride, C + r * c_stride, c_stride);
}

/* The sums of the numbers of four vectors. */
static ALWAYS_INLINE WIDE void NAME(add_up)(const VECTOR *v, REAL *sum)
{
#if LANES == 16
    VECTOR a = _mm512_add_ps(_mm512_unpacklo_ps(v[0], v[1]), _mm512_unpackhi_ps(v[0], v[1]));
    VECTOR b = _mm512_add_ps(_mm512_unpacklo_ps(v[2], v[3]), _mm512_unpackhi_ps(v[2], v[3]));
    __m512d c = _mm512_castps_pd(a), d = _mm512_castps_pd(b);
    VECTOR all = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(c, d)), _mm512_castpd_ps(_mm512_unpackhi_pd(c, d)));
    all = _mm512_add_ps(all, _mm512_shuffle_f32x4(all, all, 0x4e));
    all = _mm512_add_ps(all, _mm512_shuffle_f32x4(all, all, 0xb1));
    _mm_storeu_ps(sum, _mm512_castps512_ps128(all));
#else
    for (int r = 0; r < 4; r++)
        sum[r] = OF(reduce_add)(v[r]);
#endif
}

/* c = A b - offset for a single sample and some rows of A, (n_rows, k); without an offset if it is null. */
static ALWAYS_INLINE WIDE void NAME(multiply_one)(const int n_rows, int64_t k, const REAL *A, const REAL *b,
                                                  const REAL *offset, REAL *c, int64_t c_stride)
{
    VECTOR sum[8];
    REAL total[8];
    int64_t j = 0;
    UNROLLED for (int r = 0; r < 8; r++)
        sum[r] = OF(setzero)();
    for (; j + LANES <= k; j += LANES) {
        VECTOR own = OF(loadu)(b + j);
        UNROLLED for (int r = 0; r < n_rows; r++)
            sum[r] = OF(fmadd)(OF(loadu)(A + r * k + j), own, sum[r]);
    }
    MASK last = (MASK)(((uint64_t)1 << (k - j)) - 1);
    VECTOR own = OF(maskz_loadu)(last, b + j);
    UNROLLED for (int r = 0; r < n_rows; r++)
        sum[r] = OF(fmadd)(OF(maskz_loadu)(last, A + r * k + j), own, sum[r]);
    NAME(add_up)(sum, total);
    if (n_rows > 4)
        NAME(add_up)(sum + 4, total + 4);
    for (int r = 0; r < n_rows; r++)
        c[r * c_stride] = total[r] - (offset ? offset[r] : 0);
}

static WIDE void NAME(multiply_sample)(int64_t m, int64_t k, const REAL *A, const REAL *b, const REAL *offset, REAL *c,
                                       int64_t c_stride)
{
#define SOME(n_rows)                                                                                                   \
    NAME(multiply_one)(n_rows, k, A + r * k, b, offset ? offset + r : 0, c + r * c_stride, c_stride)
    int64_t r = 0;
    for (; r + 8 <= m; r += 8)
        SOME(8);
    for (; r + 3 <= m; r += 3)
        SOME(3);
    for (; r < m; r++)
        SOME(1);
#undef SOME
}
#endif

/* C = A B - c, all by rows; c, a number for each, may be null. */
static void NAME(multiply)(NAME(Gemm) gemm, const REAL *A, int64_t m, int64_t k, const REAL *B, int64_t b_stride,
                           int64_t n, const REAL *c, REAL *C, int64_t c_stride)
{
#ifdef WIDE
    int wide = __builtin_cpu_supports("avx512f") != 0;
    if (wide && n == 1 && b_stride == 1) {
        NAME(multiply_sample)(m, k, A, B, c, C, c_stride);
        return;
    }
#endif
    for (int64_t r = 0; r < m; r++)
        for (int64_t j = 0; j < n; j++)
            C[r * c_stride + j] = c ? -c[r] : 0;
#ifdef WIDE
    if (wide) {
        NAME(multiply_few)(m, k, A, B, b_stride, n, C, c_stride);
        return;
    }
#endif
    int rows = (int)m, inner = (int)k, columns = (int)n, ldb = (int)b_stride, ldc = (int)c_stride;
    REAL one = 1;
    gemm("N", "N", &columns, &rows, &inner, &one, B, &ldb, A, &inner, &one, C, &ldc);
}

/* Centred inputs of samples a .. a + n; `raw` is room for them before the projection. */
static void NAME(inputs)(const NAME(Front) *front, const NAME(Source) *source, int64_t a, int64_t n, REAL *raw, REAL *x,
                         int64_t stride)
{
    const REAL *center = front->center, *low = front->low, *high = front->high;
    REAL *out = x;
    if (front->projection) {
        out = raw;
        center = low = high = 0;
    }
    if (source->kind == SAMPLES)
        NAME(load_samples)(source->data, source->stride, source->which + a, front->n_raw, n, center, low, high, out, stride);
    else if (source->kind == BYTES)
        NAME(load_bytes)((const uint8_t *)source->data + a, source->stride, source->which, front->n_raw, n, center, low,
                         high, out, stride);
    else if (source->kind == SHORTS)
        NAME(load_shorts)((const uint16_t *)source->data + a, source->stride, source->which, front->n_raw, n, center, low,
                          high, out, stride, source->step, source->first);
    else
        NAME(load)((const REAL *)source->data + a, source->stride, source->which, front->n_raw, n, center, low, high, out,
                   stride);
    if (front->projection) {
        NAME(multiply)(front->gemm, front->projection, front->n_inputs, front->n_raw, raw, stride, n, front->center, x,
                       stride);
        if (front->low)
            NAME(load)(x, stride, 0, front->n_inputs, n, 0, front->low, front->high, x, stride);
    }
}

/* Edges along the order of a tile. Pairs join positions first[k] and last[k], those of chunk q from at[q] up to
   at[q + 1]; weights are square roots, null for 1. Runs join a position p to first[r, p] .. last[r, p]. */
typedef struct {
    int64_t kind, n_runs, reach;
    const int64_t *first, *last, *at;
    const REAL *weights;
} NAME(Edges);

/* What there is to know about a tile, n samples of which count. Part i holds samples begin[i] .. end[i]. If weights[i] is
   null, they have the same weights: factors[i] times the product is added to each channel before (null for nothing), and
   the product goes on or, if anew[i], begins anew. Else weights[i] are square roots of weights, (channels, samples of the
   part). Functions of the samples are (n_functions, n). The edges of chunk q reach up to sample reached[q]. */
typedef struct {
    int64_t n, n_parts;
    const int64_t *begin, *end;
    const REAL *const *weights, *const *factors;
    const uint8_t *anew;
    int64_t n_runs;
    const int64_t *starts;
    int64_t n_functions;
    const REAL *functions;
    int64_t n_edges;
    const NAME(Edges) *edges;
    const int64_t *reached;
} NAME(Tile);

/* Whether samples follow each other in memory. */
static int NAME(in_order)(const int64_t *which, int64_t n)
{
    for (int64_t k = 1; k < n; k++)
        if (which[k] != which[k - 1] + 1)
            return 0;
    return 1;
}

#ifdef WIDE
/* Rows row .. row + n_rows of C, (T, T), up to their columns on its diagonal. */
#define ROWS_OF(n_rows)                                                                                                \
    NAME(multiply_rows)(n_rows, (row + n_rows + LANES - 1) / LANES, T, some, A + row, a_stride, 1, B, b_stride,        \
                        C + row * T, T)

static WIDE void NAME(multiply_wide)(int64_t T, int64_t n, const REAL *A, int64_t a_stride, const REAL *B,
                                     int64_t b_stride, REAL *C)
{
    for (int64_t k = 0; k < n; k += DEPTH, A += DEPTH * a_stride, B += DEPTH * b_stride) {
        int64_t some = n - k < DEPTH ? n - k : DEPTH, row = 0;
        for (; row + 8 <= T; row += 8)
            ROWS_OF(8);
        if (T - row >= 4) {
            ROWS_OF(4);
            row += 4;
        }
        for (; row < T; row++)
            ROWS_OF(1);
    }
}
#undef ROWS_OF

/* Y += X W for n samples of I numbers and D features. */
static WIDE void NAME(map_wide)(int64_t n, int64_t I, int64_t D, const REAL *X, int64_t x_stride, const REAL *W, REAL *Y,
                                int64_t y_stride)
{
    int64_t k = 0, n_vectors = (D + LANES - 1) / LANES;
    for (; k + 8 <= n; k += 8)
        NAME(multiply_rows)(8, n_vectors, D, I, X + k * x_stride, 1, x_stride, W, D, Y + k * y_stride, y_stride);
    for (; k < n; k++)
        NAME(multiply_rows)(1, n_vectors, D, I, X + k * x_stride, 1, x_stride, W, D, Y + k * y_stride, y_stride);
}
#endif

/* The lower triangle (by rows) of C += A^T B, which is symmetric; the T numbers of each of n samples follow each other. */
static void NAME(add_products)(const NAME(Front) *front, int64_t n, const REAL *A, int64_t a_stride, const REAL *B,
                               int64_t b_stride, REAL *C)
{
    int64_t T = front->n_variables;
#ifdef WIDE
    if (T <= MAX_SIZE && __builtin_cpu_supports("avx512f")) {
        NAME(multiply_wide)(T, n, A, a_stride, B, b_stride, C);
        return;
    }
#endif
    int size = (int)T, columns = (int)n, lda = (int)a_stride, ldb = (int)b_stride;
    REAL one = 1;
    if (A == B)
        front->syrk("U", "N", &size, &columns, &one, A, &lda, &one, C, &size);
    for (int from = 0; A != B && from < size; from += PANEL) {
        int to = from + PANEL < size ? from + PANEL : size, some = to - from;
        front->gemm("N", "T", &to, &some, &columns, &one, A, &lda, B + from, &ldb, &one, C + from * T, &size);
    }
}

/* Add the edges of chunk q to the sums of each set, (n_edges, T, T); the buffer has space for so many samples. */
static void NAME(add_edges)(const NAME(Front) *front, const NAME(Tile) *tile, int64_t q, int64_t chunk, const REAL *z,
                            int64_t z_stride, REAL *buffer, int64_t space, double *room, REAL *sums)
{
    int64_t T = front->n_variables, a = q * chunk, b = a + chunk < tile->n ? a + chunk : tile->n, c = tile->reached[q];
    for (int64_t m = 0; m < tile->n_edges; m++, sums += T * T) {
        const NAME(Edges) *edges = tile->edges + m;
        if (edges->kind == RUNS) {
            NAME(pull)(z, z_stride, T, a, b, c, edges->n_runs, edges->first, edges->last, tile->n, edges->reach, buffer,
                       room);
            NAME(add_products)(front, c - a, z, z_stride, buffer, T, sums);
            continue;
        }
        for (int64_t k = edges->at[q]; k < edges->at[q + 1]; k += space) {
            int64_t some = edges->at[q + 1] - k < space ? edges->at[q + 1] - k : space;
            NAME(subtract)(z, z_stride, T, a, some, edges->first + k, edges->last + k,
                           edges->weights ? edges->weights + k : 0, buffer);
            NAME(add_products)(front, some, buffer, T, buffer, T, sums);
        }
    }
}

/* Add the samples of a tile to sums, `chunk` of them at a time, so that their expansion stays in the cache.

   Samples that are neither projected nor expanded, and whose range is not wanted, are not turned into rows; where they
   follow each other and nothing is subtracted, they are not even copied. If there are edges, others are turned back.
   Sums of z times functions of the samples are added to by_function, (n_functions, T). Scratch: (n_raw + n_inputs + 3 T)
   rows. */
EXPORT void NAME(sum_tile)(const NAME(Front) *front, const NAME(Source) *source, const NAME(Tile) *tile, int64_t chunk,
                           int64_t n_channels, REAL *product, REAL *channels, double *runs, REAL *by_function, REAL *low,
                           REAL *high, REAL *edge_sums, REAL *scratch, int64_t stride, double *room)
{
    int64_t T = front->n_variables, n = tile->n, part = 0, run = 0, local[MAX_CHUNK + 1];
    int as_given = source->kind == SAMPLES && !front->projection && !front->n_operations && !low;
    int by_samples = as_given || tile->n_edges;
    REAL *raw = scratch, *x = raw + front->n_raw * stride, *rows = x + front->n_inputs * stride;
    REAL *buffer = rows + T * stride, *turned = buffer + T * stride, one = 1;
    int size = (int)T, all = (int)(T * T), step = 1, n_sums = (int)tile->n_functions, n_all = (int)n;
    char *layout = by_samples ? "N" : "T";
    for (int64_t a = 0, q = 0; a < n; a += chunk, q++) {
        int64_t b = a + chunk < n ? a + chunk : n, c = tile->n_edges ? tile->reached[q] : b;
        const REAL *z = rows;
        int64_t z_stride = by_samples ? T : stride;
        if (as_given && !front->center && !front->shift && NAME(in_order)(source->which + a, c - a)) {
            z = (const REAL *)source->data + source->which[a] * source->stride;
            z_stride = source->stride;
        } else if (as_given)
            NAME(take_samples)(source->data, source->stride, source->which + a, T, c - a, front->center, front->shift,
                               rows);
        else {
            REAL *inputs = front->n_operations ? x : rows;
            NAME(inputs)(front, source, a, c - a, raw, inputs, stride);
            if (low)
                NAME(widen)(inputs, stride, front->n_inputs, b - a, low, high);
            NAME(expand)(x, stride, c - a, front->operation, front->first, front->second, front->row, front->alike,
                         front->exponent, front->n_operations, rows, stride);
            if (front->shift)
                NAME(load)(rows, stride, 0, T, c - a, front->shift, 0, 0, rows, stride);
            if (by_samples) {
                NAME(turn)(rows, stride, T, c - a, turned);
                z = turned;
            }
        }

        int64_t n_local = 0;
        for (; run + n_local < tile->n_runs && tile->starts[run + n_local] < b; n_local++)
            local[n_local] = tile->starts[run + n_local] > a ? tile->starts[run + n_local] - a : 0;
        if (by_samples)
            NAME(add_sample_runs)(z, z_stride, T, b - a, local, n_local, runs + run, tile->n_runs, buffer);
        else
            NAME(add_runs)(z, z_stride, T, b - a, local, n_local, runs + run, tile->n_runs);
        run += n_local ? n_local - 1 : 0; /* the last one may go on */
        int lda = (int)z_stride, ldb = by_samples ? size : (int)stride;
        if (tile->n_functions) {
            int columns = (int)(b - a);
            front->gemm(layout, "N", &size, &n_sums, &columns, &one, z, &lda, tile->functions + a, &n_all, &one,
                        by_function, &size);
        }

        while (part < tile->n_parts && tile->begin[part] < b) {
            int64_t begin = tile->begin[part], end = tile->end[part];
            int64_t lo = begin > a ? begin : a, hi = end < b ? end : b;
            const REAL *some = z + (lo - a) * (by_samples ? z_stride : 1);
            int columns = (int)(hi - lo), begins = lo == begin;
            if (tile->weights[part])
                for (int64_t k = 0; k < n_channels; k++) {
                    const REAL *own = tile->weights[part] + k * (end - begin) + lo - begin;
                    NAME(weight)(some, z_stride, by_samples ? hi - lo : T, by_samples ? T : hi - lo, own, by_samples,
                                 buffer, ldb);
                    if (by_samples)
                        NAME(add_products)(front, hi - lo, buffer, ldb, buffer, ldb, channels + k * T * T);
                    else
                        front->syrk("U", "T", &size, &columns, &one, buffer, &ldb, &one, channels + k * T * T, &size);
                }
            else {
                for (int64_t k = 0; begins && tile->factors[part] && k < n_channels; k++) {
                    REAL factor = tile->factors[part][k];
                    if (factor != 0)
                        front->axpy(&all, &factor, product, &step, channels + k * T * T, &step);
                }
                if (begins && tile->anew[part])
                    memset(product, 0, T * T * sizeof(REAL));
                if (by_samples)
                    NAME(add_products)(front, hi - lo, some, z_stride, some, z_stride, product);
                else
                    front->syrk("U", "T", &size, &columns, &one, some, &lda, &one, product, &size);
            }
            if (end > b)
                break;
            part++;
        }
        if (tile->n_edges)
            NAME(add_edges)(front, tile, q, chunk, z, z_stride, buffer, stride, room, edge_sums);
    }
}

/* A trained node: y' = F z - f, then G [x; y'] - k. So many samples are expanded at once. */
typedef struct {
    const NAME(Front) *front;
    int64_t chunk, n_slow, n_rest;
    const REAL *slow, *slow_offset, *rest, *rest_offset;
} NAME(Encoder);

/* Features of nodes whose raw input lies in one array, node i in the rows which[i] (all rows if there is no `which`). Those
   of node i are the first of n_out rows from Y + i * n_out * y_stride on; the others are set to 0. Scratch: n_raw + n_inputs +
   n_slow + T rows, the largest number over all nodes. */
EXPORT void NAME(encode_nodes)(int64_t n_nodes, const NAME(Encoder) *const *nodes, const NAME(Source) *source,
                               const int64_t *const *which, int64_t n, int64_t n_out, REAL *Y, int64_t y_stride,
                               REAL *scratch, int64_t stride)
{
    for (int64_t i = 0; i < n_nodes; i++, Y += n_out * y_stride) {
        const NAME(Encoder) *node = nodes[i];
        const NAME(Front) *front = node->front;
        NAME(Source) own = *source;
        if (which)
            own.which = which[i];
        int64_t I = front->n_inputs, n_slow = node->n_slow, n_rest = node->n_rest;
        REAL *raw = scratch, *x = raw + front->n_raw * stride, *y = x + I * stride, *z = y + n_slow * stride;
        for (int64_t a = 0; a < n; a += node->chunk) {
            int64_t some = a + node->chunk < n ? node->chunk : n - a;
            NAME(inputs)(front, &own, a, some, raw, x, stride);
            if (n_slow) {
                NAME(expand)(x, stride, some, front->operation, front->first, front->second, front->row, front->alike,
                             front->exponent, front->n_operations, z, stride);
                NAME(multiply)(front->gemm, node->slow, n_slow, front->n_variables, front->n_operations ? z : x, stride,
                               some, node->slow_offset, y, stride);
                NAME(load)(y, stride, 0, n_slow, some, 0, 0, 0, Y + a, y_stride);
            }
            if (n_rest) {
                REAL *out = Y + n_slow * y_stride + a;
                NAME(multiply)(front->gemm, node->rest, n_rest, I + n_slow, x, stride, some, node->rest_offset, out,
                               y_stride);
            }
        }
        for (int64_t row = n_slow + n_rest; row < n_out; row++)
            memset(Y + row * y_stride, 0, n * sizeof(REAL));
    }
}

/* The same for samples that need no expansion, as samples: y = W^T x + f, with W (n_raw, D). Scratch: n_raw rows. */
EXPORT void NAME(encode_samples)(const NAME(Front) *front, const NAME(Source) *source, int64_t n, int64_t chunk, int64_t D,
                                 const REAL *W, const REAL *f, REAL *Y, int64_t y_stride, REAL *scratch)
{
    int64_t I = front->n_raw;
    for (int64_t a = 0; a < n; a += chunk) {
        int64_t some = a + chunk < n ? chunk : n - a, x_stride = I;
        const REAL *x = scratch;
        REAL *y = Y + a * y_stride;
        if (!front->center && NAME(in_order)(source->which + a, some)) {
            x = (const REAL *)source->data + source->which[a] * source->stride;
            x_stride = source->stride;
        } else
            NAME(take_samples)(source->data, source->stride, source->which + a, I, some, front->center, 0, scratch);
        for (int64_t k = 0; k < some; k++)
            memcpy(y + k * y_stride, f, D * sizeof(REAL));
#ifdef WIDE
        if (D <= MAX_SIZE && __builtin_cpu_supports("avx512f")) {
            NAME(map_wide)(some, I, D, x, x_stride, W, y, y_stride);
            continue;
        }
#endif
        int features = (int)D, columns = (int)some, inner = (int)I, ldx = (int)x_stride, ldy = (int)y_stride;
        REAL one = 1;
        front->gemm("N", "N", &features, &columns, &inner, &one, W, &features, x, &ldx, &one, y, &ldy);
    }
}
#undef POLYNOMIAL
