/*
  SPDX-License-Identifier: MIT OR Apache-2.0
  Copyright (c) 2026 perfquilt contributors

  Compares the collation hashes of two MariaDB source trees over many inputs.
  The values must be bit-identical: partitioned tables, MEMORY tables' hash
  indexes and long unique keys keep rows where the hash says.

  Every key ends right before an unreadable page, so reading past its end is
  caught as well.
*/
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SIDE(p) \
  extern void p##_side_prepare(void); \
  extern unsigned p##_side_count(void); \
  extern const char *p##_side_name(unsigned); \
  extern unsigned p##_side_mbmaxlen(unsigned); \
  extern unsigned p##_side_mbminlen(unsigned); \
  extern void p##_side_hash(unsigned, const unsigned char *, size_t, \
                            unsigned long *, unsigned long *);
SIDE(old)
SIDE(new)

enum { MAX_LEN= 300, MAX_ALIGN= 16 };

static uint64_t state;

static uint64_t rnd(void)                       /* splitmix64 */
{
  uint64_t z= (state+= 0x9E3779B97F4A7C15ULL);
  z= (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z= (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

/* Appends one UTF-8 character of a random length, up to 'max' bytes */
static size_t utf8(unsigned char *to, size_t room, unsigned max)
{
  static const uint32_t low[]= {0, 0, 0x80, 0x800, 0x10000};
  static const uint32_t high[]= {0, 0x7F, 0x7FF, 0xFFFF, 0x10FFFF};
  unsigned n= 1 + rnd() % max;
  if (n > room)
    n= 1;
  uint32_t c= low[n] + rnd() % (high[n] - low[n] + 1);
  if (c >= 0xD800 && c <= 0xDFFF)
    c= 0xFFFD;
  switch (n) {
  case 1:
    to[0]= (unsigned char) c;
    break;
  case 2:
    to[0]= 0xC0 | (c >> 6);
    to[1]= 0x80 | (c & 63);
    break;
  case 3:
    to[0]= 0xE0 | (c >> 12);
    to[1]= 0x80 | ((c >> 6) & 63);
    to[2]= 0x80 | (c & 63);
    break;
  default:
    to[0]= 0xF0 | (c >> 18);
    to[1]= 0x80 | ((c >> 12) & 63);
    to[2]= 0x80 | ((c >> 6) & 63);
    to[3]= 0x80 | (c & 63);
  }
  return n;
}

enum kind
{
  RANDOM_BYTES, ASCII, UTF8_3, UTF8_4, BROKEN_UTF8, SAME_BYTE, DIGITS,
  UTF16_ASCII, KINDS
};

static void fill(unsigned char *to, size_t len, enum kind kind)
{
  size_t i= 0;
  unsigned char same= (unsigned char) rnd();
  switch (kind) {
  case UTF8_3:
  case UTF8_4:
  case BROKEN_UTF8:
    while (i < len)
      i+= utf8(to + i, len - i, kind == UTF8_3 ? 3 : 4);
    if (kind == BROKEN_UTF8 && len)
      to[rnd() % len]= (unsigned char) rnd();
    break;
  default:
    for (; i < len; i++)
      switch (kind) {
      case ASCII:       to[i]= 0x20 + rnd() % 95; break;
      case SAME_BYTE:   to[i]= same; break;
      case DIGITS:      to[i]= i % 12 == 11 ? '-' : '0' + rnd() % 10; break;
      case UTF16_ASCII: to[i]= i & 1 ? 0x20 + rnd() % 95 : 0; break;
      default:          to[i]= (unsigned char) rnd();
      }
  }
  if (len && rnd() % 3 == 0)                    /* trailing spaces */
  {
    size_t n= rnd() % (len + 1);
    memset(to + len - n, 0x20, n);
  }
}

int main(int argc, char **argv)
{
  unsigned rounds= argc > 1 ? (unsigned) atoi(argv[1]) : 4;
  uint64_t seed= argc > 2 ? strtoull(argv[2], NULL, 0) : 1;
  unsigned count= old_side_count(), longest= MAX_LEN + MAX_ALIGN;
  uint64_t compared= 0, digest= 14695981039346656037ULL;
  size_t page= (size_t) sysconf(_SC_PAGESIZE);
  unsigned char *map= mmap(NULL, 2 * page, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  unsigned char *guard= map + page;

  if (map == MAP_FAILED || page < longest || mprotect(guard, page, PROT_NONE))
  {
    perror("guard page");
    return 2;
  }
  old_side_prepare();
  new_side_prepare();
  if (count != new_side_count())
  {
    fprintf(stderr, "the trees have different collations: %u and %u\n",
            count, new_side_count());
    return 2;
  }

  state= seed;
  for (unsigned cs= 0; cs < count; cs++)
  {
    const char *name= old_side_name(cs);
    if (strcmp(name, new_side_name(cs)) ||
        old_side_mbmaxlen(cs) != new_side_mbmaxlen(cs))
    {
      fprintf(stderr, "the trees have different collations: %s and %s\n",
              name, new_side_name(cs));
      return 2;
    }
    for (unsigned round= 0; round < rounds; round++)
      for (int kind= 0; kind < KINDS; kind++)
        for (size_t len= 0; len <= MAX_LEN; len++)
        {
          /*
            Round 0 puts the end at the unreadable page; the others walk
            through the alignments.
          */
          unsigned char *key= guard - len - (round ? rnd() % MAX_ALIGN : 0);
          unsigned long o1, o2, n1, n2;
          /* whole characters only, as the callers guarantee */
          size_t used= len - len % old_side_mbminlen(cs);
          if (rnd() & 1)
          {
            o1= 1;                              /* what most callers start with */
            o2= 4;
          }
          else
          {
            o1= (unsigned long) rnd();
            o2= (unsigned long) rnd();
          }
          n1= o1;
          n2= o2;
          fill(key, len, (enum kind) kind);
          /* the second call goes on from the first, as with several columns */
          for (int call= 0; call < 2; call++)
          {
            old_side_hash(cs, key, used, &o1, &o2);
            new_side_hash(cs, key, used, &n1, &n2);
            compared++;
            digest= (digest ^ o1) * 1099511628211ULL;
            digest= (digest ^ o2) * 1099511628211ULL;
            if (o1 != n1 || o2 != n2)
            {
              fprintf(stderr, "%s: length %zu, kind %d, round %u, seed %llu: "
                      "old %lx %lx, new %lx %lx\n", name, used, kind, round,
                      (unsigned long long) seed, o1, o2, n1, n2);
              return 1;
            }
          }
        }
  }
  printf("%u collations, %llu hashes compared, all identical (digest %016llx)\n",
         count, (unsigned long long) compared, (unsigned long long) digest);
  return 0;
}
