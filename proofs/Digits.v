(* The law of sampling/digits.py. The binary digits of a geometric number are independent; digits whose chances are off
   by a little make numbers whose law is off by no more than the sum. Last, a program in whole numbers that bounds how
   far the shipped chances are off: the second of two, the other stands in proofs/intervals.py. *)
From Coq Require Import ZArith QArith Qabs List Bool Lia Lqa.
Import ListNotations.
Open Scope Q_scope.

Fixpoint total (numbers : list Q) : Q := match numbers with [] => 0 | x :: rest => x + total rest end.
Fixpoint strings (digits : nat) : list (list bool) :=
  match digits with
  | O => [[]]
  | S more => map (cons true) (strings more) ++ map (cons false) (strings more)
  end.

(* The probability of digits, the lowest first, given the chance of each to be 1. *)
Fixpoint weight (chances : list Q) (digits : list bool) : Q :=
  match chances, digits with
  | p :: chances', d :: digits' => (if d then p else 1 - p) * weight chances' digits'
  | _, _ => 1
  end.
Definition probabilities (chances : list Q) : Prop := Forall (fun p => 0 <= p <= 1) chances.
Fixpoint off (first second : list Q) : Q :=
  match first, second with p :: first', q :: second' => Qabs (p - q) + off first' second' | _, _ => 0 end.
(* Twice the total variation of the two laws. *)
Definition apart (first second : list Q) : Q :=
  total (map (fun d => Qabs (weight first d - weight second d)) (strings (length first))).

Lemma total_app : forall a b, total (a ++ b) == total a + total b.
Proof. induction a as [|x a IH]; intros b; cbn [app total]; [lra|]. rewrite IH. lra. Qed.

Lemma total_le : forall (A : Type) (f g : A -> Q) l, (forall x, f x <= g x) -> total (map f l) <= total (map g l).
Proof. intros A f g l below. induction l as [|x l IH]; cbn [map total]; [lra|]. specialize (below x). lra. Qed.

Lemma total_mix : forall (A : Type) (f g : A -> Q) a b l,
  total (map (fun x => a * f x + b * g x) l) == a * total (map f l) + b * total (map g l).
Proof. intros A f g a b l. induction l as [|x l IH]; cbn [map total]; [lra|]. rewrite IH. lra. Qed.

Lemma weight_nonneg : forall chances digits, probabilities chances -> 0 <= weight chances digits.
Proof.
  intros chances digits all. revert digits.
  induction all as [|p chances bounds all IH]; intros digits; [cbn; lra|]. destruct digits as [|d digits]; [cbn; lra|].
  cbn [weight]. specialize (IH digits). apply Qmult_le_0_compat; [destruct d; lra|exact IH].
Qed.

Lemma weights_add_up : forall chances, total (map (weight chances) (strings (length chances))) == 1.
Proof.
  induction chances as [|p chances IH]; [cbn; lra|]. cbn [length strings].
  rewrite map_app, total_app, !map_map. cbn [weight].
  setoid_replace (total (map (fun x => p * weight chances x) (strings (length chances))))
    with (p * total (map (weight chances) (strings (length chances)))).
  setoid_replace (total (map (fun x => (1 - p) * weight chances x) (strings (length chances))))
    with ((1 - p) * total (map (weight chances) (strings (length chances)))).
  - rewrite IH. lra.
  - clear. induction (strings (length chances)) as [|x l IH]; cbn [map total]; [lra|]. rewrite IH. lra.
  - clear. induction (strings (length chances)) as [|x l IH]; cbn [map total]; [lra|]. rewrite IH. lra.
Qed.

Lemma branch : forall c u v w, 0 <= c -> 0 <= w ->
  Qabs (c * u - v * w) <= c * Qabs (u - w) + Qabs (c - v) * w.
Proof.
  intros c u v w first second. setoid_replace (c * u - v * w) with (c * (u - w) + (c - v) * w) by ring.
  eapply Qle_trans; [apply Qabs_triangle|]. rewrite !Qabs_Qmult, (Qabs_pos c), (Qabs_pos w) by assumption. lra.
Qed.

Theorem digits_apart : forall first second, length first = length second ->
  probabilities first -> probabilities second -> apart first second <= 2 * off first second.
Proof.
  intros first second same all. revert second same.
  induction all as [|p first bounds all IH]; intros second same all'.
  { destruct second; [|discriminate]. unfold apart. cbn. unfold Qabs. cbn. lra. }
  destruct all' as [|q second bounds' all']; [discriminate|].
  specialize (IH second ltac:(simpl in same; lia) all'). unfold apart in *. cbn [length strings off].
  rewrite map_app, total_app, !map_map. cbn [weight].
  assert (adds := weights_add_up second). replace (length second) with (length first) in adds by (simpl in same; lia).
  set (l := strings (length first)) in *.
  assert (one : total (map (fun x => Qabs (p * weight first x - q * weight second x)) l)
                <= p * total (map (fun d => Qabs (weight first d - weight second d)) l)
                   + Qabs (p - q) * total (map (weight second) l)).
  { rewrite <- total_mix. apply total_le. intros x. apply branch; [lra|now apply weight_nonneg]. }
  assert (zero : total (map (fun x => Qabs ((1 - p) * weight first x - (1 - q) * weight second x)) l)
                <= (1 - p) * total (map (fun d => Qabs (weight first d - weight second d)) l)
                   + Qabs (p - q) * total (map (weight second) l)).
  { setoid_replace (Qabs (p - q)) with (Qabs (1 - p - (1 - q)))
      by (rewrite <- (Qabs_opp (p - q)); apply Qabs_wd; ring).
    rewrite <- total_mix. apply total_le. intros x. apply branch; [lra|now apply weight_nonneg]. }
  rewrite adds in one, zero. lra.
Qed.

(* -- geometric numbers -- *)

Fixpoint power (q : Q) (k : nat) : Q := match k with O => 1 | S less => q * power q less end.
Fixpoint number (digits : list bool) : nat :=
  match digits with [] => O | d :: rest => ((if d then 1 else 0) + 2 * number rest)%nat end.

(* Digit j of a number with P(k) proportional to q^k is 1 with the chance q^(2^j) / (1 + q^(2^j)). *)
Fixpoint chances (q : Q) (digits : nat) : list Q :=
  match digits with O => [] | S more => q / (1 + q) :: chances (q * q) more end.

Lemma power_twice : forall q k, power (q * q) k == power q (2 * k).
Proof.
  induction k as [|k IH]; [reflexivity|]. replace (2 * S k)%nat with (S (S (2 * k))) by lia.
  cbn [power]. rewrite IH. ring.
Qed.

Lemma power_below : forall q k, 0 <= q -> q < 1 -> (0 < k)%nat -> 0 <= power q k /\ power q k < 1.
Proof.
  intros q k low high some. destruct k as [|k]; [lia|]. clear some.
  induction k as [|k [IH IH']]; [cbn; lra|]. cbn [power] in *. nra.
Qed.

(* All digits below 2^J together: the geometric law, given that the number is below 2^J. *)
Theorem digits_law : forall digits q, 0 < q -> q < 1 ->
  weight (chances q (length digits)) digits
  == power q (number digits) * (1 - q) / (1 - power q (2 ^ length digits)).
Proof.
  induction digits as [|d digits IH]; intros q low high; [cbn; field; lra|].
  cbn [length chances weight number]. rewrite IH by nra. rewrite !power_twice.
  assert (some : (0 < 2 ^ length digits)%nat) by (apply Nat.neq_0_lt_0, Nat.pow_nonzero; lia).
  destruct (power_below q (2 * 2 ^ length digits) ltac:(lra) high ltac:(lia)) as [_ below].
  replace (2 ^ S (length digits))%nat with (2 * 2 ^ length digits)%nat by (simpl; lia).
  destruct d; cbn [power Nat.add]; field; split; lra.
Qed.

(* -- intervals in whole numbers of 2^-P -- *)
Open Scope Z_scope.

Definition P : Z := 1152.
Definition B : Z := 1024.
Definition divide_up (a b : Z) : Z := - ((- a) / b).

(* exp(-1/s): partial sums of the series, whose terms fall and change their signs, every term rounded both ways. *)
Fixpoint series (terms : nat) (k s low_term high_term low high : Z) (add : bool) : Z * Z :=
  match terms with
  | O => (low - high_term, high + high_term)
  | S more =>
      let low_next := low_term / (k * s) in
      let high_next := divide_up high_term (k * s) in
      if add
      then series more (k + 1) s low_next high_next (low + low_next) (high + high_next) false
      else series more (k + 1) s low_next high_next (low - high_next) (high - low_next) true
  end.
Definition exponential (s : Z) : Z * Z :=
  let one := Z.shiftl 1 P in series 200 1 s one one one one false.

(* Each chance, cut after 1024 bits, is at most one unit below the true one; then on with the square of q. *)
Fixpoint check (low high : Z) (cuts : list Z) : bool * Z :=
  match cuts with
  | [] => (true, high)
  | cut :: rest =>
      let fine := (cut * (Z.shiftl 1 P + low) <=? Z.shiftl low B)
                  && (Z.shiftl high B <=? (cut + 1) * (Z.shiftl 1 P + high)) in
      let (all, tail) := check (Z.shiftr (low * low) P) (Z.shiftr (high * high) P + 1) rest in
      (fine && all, tail)
  end.

(* Whether all chances are right, and twice (for two geometric numbers) the sum of all units and of the mass beyond. *)
Definition laplace_off (s : Z) (cuts : list Z) : bool * Z :=
  let (low, high) := exponential s in
  let (fine, tail) := check low high cuts in
  (fine, 2 * (Z.of_nat (length cuts) * Z.shiftl 1 (P - B) + tail)).
Definition negligible (bound : Z) : bool := bound * 10 ^ 300 <? Z.shiftl 1 P.
