/*
  SPDX-License-Identifier: MIT OR Apache-2.0
  Copyright (c) 2026 perfquilt contributors

  One side of the hash comparison: compiled once against the old tree and once
  against the new one, linked with that tree's own strings/ctype-*.c, and then
  given a prefix (old_ or new_) so that both fit in one program. Only plain
  types cross the border, so the two trees may differ in struct layout.
*/
#include "strings_def.h"
#include <m_ctype.h>
#include "my_sys.h"

/* Every collation object the compiled files define; written by `check` */
#define COLLATION(name) extern struct charset_info_st name;
#include "collations.inc"
#undef COLLATION

static struct charset_info_st *const named[]=
{
#define COLLATION(name) &name,
#include "collations.inc"
#undef COLLATION
};

#define NAMED (sizeof(named) / sizeof(named[0]))

static struct charset_info_st *collation(unsigned i)
{
  return i < NAMED ? named[i] : &compiled_charsets[i - NAMED];
}

unsigned side_count(void)
{
  unsigned n= NAMED;
  while (compiled_charsets[n - NAMED].coll_name.str)
    n++;
  return n;
}

/*
  _nopad_ collations have no sort order of their own until the server lets them
  inherit that of the same character set's other collations: do the same.
*/
void side_prepare(void)
{
  unsigned count= side_count();
  for (unsigned i= 0; i < count; i++)
    for (unsigned j= 0; j < count && !collation(i)->sort_order; j++)
      if (!strcmp(collation(i)->cs_name.str, collation(j)->cs_name.str))
        collation(i)->sort_order= collation(j)->sort_order;
}

const char *side_name(unsigned i) { return collation(i)->coll_name.str; }
unsigned side_mbmaxlen(unsigned i) { return collation(i)->mbmaxlen; }
unsigned side_mbminlen(unsigned i) { return collation(i)->mbminlen; }

void side_hash(unsigned i, const unsigned char *key, size_t len,
               unsigned long *nr1, unsigned long *nr2)
{
  struct charset_info_st *cs= collation(i);
  cs->coll->hash_sort(cs, key, len, nr1, nr2);
}
