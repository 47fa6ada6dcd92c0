/* Measures what a processor can do: multiply-adds of floats and copies of memory.
   Built and run by `uopc bench`; the argument is a number of threads. Prints two numbers:
   10^9 operations a second (a multiply-add is two), and 10^9 bytes a second read and written. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if defined(__AVX512F__)
#define BYTES 64
#elif defined(__AVX__)
#define BYTES 32
#else
#define BYTES 16
#endif

typedef float vector __attribute__((vector_size(BYTES)));

/* Enough independent sums to cover the latency of one, and few enough for 16 registers. */
#define SUMS 12
#define LANES (BYTES / (long)sizeof(float))
#define STEPS 3000000L
#define FLOATS (24L << 20)
#define ROUNDS 5
#define MOST 256

static int threads;
static pthread_barrier_t barrier;
static float *from, *to;
static double best[2];
static volatile float sink;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec * 1e-9;
}

/* The empty statement keeps each step as it is and where it is. */
#if defined(__x86_64__)
#define KEEP(sum) __asm__ volatile("" : "+v"(sum))
#elif defined(__aarch64__)
#define KEEP(sum) __asm__ volatile("" : "+w"(sum))
#else
#define KEEP(sum) (void)0
#endif
#define ALL(DO) DO(a) DO(b) DO(c) DO(d) DO(e) DO(f) DO(g) DO(h) DO(i) DO(j) DO(k) DO(l)

static void multiply(void) {
  vector factor, term, total;
  for (long n = 0; n < LANES; n++) factor[n] = 0.999999f, term[n] = 1e-6f;
  total = term;
#define BEGIN(sum) vector sum = term;
#define STEP(sum) sum = sum * factor + term; KEEP(sum);
#define ADD(sum) total += sum;
  ALL(BEGIN)
  for (long n = 0; n < STEPS; n++) { ALL(STEP) }
  ALL(ADD)
  sink = total[0];
}

/* Large stores that go past the caches, where there is an instruction for that. */
static void copy(long first, long last) {
#if defined(__AVX512F__)
  typedef long long words __attribute__((vector_size(64)));
  for (long i = first; i < last; i += 16)
    __builtin_ia32_movntdq512((words *)(to + i), *(const words *)(from + i));
  __builtin_ia32_sfence();
#elif defined(__SSE2__)
  typedef long long words __attribute__((vector_size(16)));
  for (long i = first; i < last; i += 4)
    __builtin_ia32_movntdq((words *)(to + i), *(const words *)(from + i));
  __builtin_ia32_sfence();
#else
  memcpy(to + first, from + first, (last - first) * sizeof(float));
#endif
}

static void *work(void *argument) {
  long id = (long)argument;
  long part = FLOATS / threads / 16 * 16;
  for (int what = 0; what < 2; what++)
    for (int round = 0; round < ROUNDS; round++) {
      pthread_barrier_wait(&barrier);
      double begun = now();
      if (what == 0) multiply();
      else copy(part * id, part * (id + 1));
      pthread_barrier_wait(&barrier);
      double work = what == 0 ? 2.0 * STEPS * SUMS * LANES : 2.0 * part * sizeof(float);
      double rate = work * threads / (now() - begun) / 1e9;
      if (id == 0 && rate > best[what]) best[what] = rate;
    }
  return 0;
}

int main(int count, char **arguments) {
  pthread_t thread[MOST];
  threads = count > 1 ? atoi(arguments[1]) : 1;
  if (threads < 1 || threads > MOST) return 2;
  from = aligned_alloc(64, FLOATS * sizeof(float));
  to = aligned_alloc(64, FLOATS * sizeof(float));
  if (!from || !to) return 1;
  /* Pages exist once they are written. */
  memset(from, 1, FLOATS * sizeof(float));
  memset(to, 1, FLOATS * sizeof(float));
  pthread_barrier_init(&barrier, 0, threads);
  for (long id = 1; id < threads; id++)
    if (pthread_create(&thread[id], 0, work, (void *)id)) return 1;
  work(0);
  for (long id = 1; id < threads; id++) pthread_join(thread[id], 0);
  printf("%.3f %.3f\n", best[0], best[1]);
  return 0;
}
