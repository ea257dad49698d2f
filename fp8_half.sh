# Progressive: stops at the first case that hangs or is wrong. In the repository's root: bash fp8_half.sh [OLD kernel file of main]
PY=${PY:-.venv/bin/python}
R="timeout -k 5 120 $PY -m scoring run --backend cuda --kernel flash_attention_fp8/wgmma_tma --no-save --isolation process"
c() { echo "batch=$1,sq=$2,sk=$2,hq=$3,hk=$3,dim=$4,causal=$5,scales=$6,rotated=0,outliers=0"; }
try() { echo "== $*"; $R --seconds 0.02 --case "$(c "$@")" | tail -3; [ "${PIPESTATUS[0]}" = 0 ] || { echo "STOP at $*"; exit 1; }; }
$PY -m scoring build --kernel flash_attention_fp8/wgmma_tma --gpu H200 >/dev/null 2>&1
# one tile of two steps or of one, in few and many blocks; more tiles than multiprocessors; odd and even steps; halves or not
for d in 64 128 256; do
  try 1 60 8 $d 1 head               # a block per tile, one warpgroup
  try 8 300 16 $d 1 head             # tiles of one step: what hung
  try 8 300 16 $d 1 block
  try 8 320 16 $d 0 head; try 8 448 16 $d 0 head; try 8 580 16 $d 0 head; try 8 384 16 $d 0 head
  try 8 700 16 $d 1 head; try 8 1100 16 $d 1 head
  try 2 2300 16 $d 0 head; try 2 3500 16 $d 1 head; try 2 3500 16 $d 1 block
done
try 8 2048 8 256 1 head              # the case that did not end
echo "== all correct; the 25 test cases"
$R --mode test | tail -4 || exit 1
[ -z "$1" ] && exit 0
echo "== race against $1"
args=""; while read -r a; do args="$args --case $(c $a)"; done <<'L'
9 1959 32 128 0 head
5 1178 20 128 0 head
39 1087 16 64 0 head
27 1947 2 64 0 head
16 1024 16 128 0 head
8 2048 32 64 0 head
8 2048 16 128 1 head
8 2048 8 256 1 head
8 2048 32 64 1 head
4 4096 16 128 1 head
2 8192 16 128 0 head
L
timeout 580 $PY -m scoring run --backend cuda --kernel flash_attention_fp8/wgmma_tma --peers --against "$1" --isolation process --seconds 0.1 $args
