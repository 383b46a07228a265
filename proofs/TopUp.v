(* Noise that is topped up: discrete Laplace noise of a wide law is that of a narrower one plus independent noise E,
   which is 0 with probability w and of the wide law otherwise. In characteristic functions,
   with x = cos t, over fractions. *)
From Coq Require Import QArith Lqa.
Open Scope Q_scope.

(* Of P(k) = (1 - p) / (1 + p) p^|k|. *)
Definition transform (p x : Q) : Q := (1 - p) * (1 - p) / (1 - 2 * p * x + p * p).
Definition weight (wide narrow : Q) : Q := (1 - wide) * (1 - wide) * narrow / ((1 - narrow) * (1 - narrow) * wide).

Lemma transform_positive : forall p x, 0 < p -> p < 1 -> -(1) <= x -> x <= 1 -> 0 < 1 - 2 * p * x + p * p.
Proof. intros. assert (p * x <= p) by nra. assert (0 < (1 - p) * (1 - p)) by nra. nra. Qed.

Theorem top_up : forall wide narrow x,
  0 < narrow -> narrow < wide -> wide < 1 -> -(1) <= x -> x <= 1 ->
  let w := weight wide narrow in
  transform wide x == transform narrow x * (w + (1 - w) * transform wide x).
Proof.
  intros. assert (first := transform_positive wide x ltac:(lra) ltac:(lra) ltac:(lra) ltac:(lra)).
  assert (second := transform_positive narrow x ltac:(lra) ltac:(lra) ltac:(lra) ltac:(lra)).
  subst w. unfold transform, weight. field. repeat split; lra.
Qed.

(* It is a mixture: the weight is a probability. *)
Theorem top_up_weight : forall wide narrow, 0 < narrow -> narrow < wide -> wide < 1 ->
  0 < weight wide narrow /\ weight wide narrow < 1.
Proof.
  intros. unfold weight. assert (0 < (1 - wide) * (1 - wide)) by nra.
  assert (0 < (1 - narrow) * (1 - narrow)) by nra.
  assert (top : 0 < (1 - wide) * (1 - wide) * narrow) by nra.
  assert (bottom : 0 < (1 - narrow) * (1 - narrow) * wide) by nra. split.
  - apply Qlt_shift_div_l; lra.
  - apply Qlt_shift_div_r; [assumption|]. nra.
Qed.
