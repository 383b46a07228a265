(* A noisy vector of whole numbers, as mechanisms/private_summary.py releases one. Noise that makes up for the move of
   the integers gives the same vector on the neighbour; in the norm of its law it costs no more than the move. *)
From Coq Require Import ZArith QArith List Lia.
From Abcdp Require Import Lists.
Import ListNotations.
Open Scope Z_scope.

Definition release (integers noise : list Z) : list Z := plus integers noise.
Definition follow (integers integers' noise : list Z) : list Z := plus noise (minus integers integers').

Theorem vector_aligned : forall integers integers' noise,
  length integers = length integers' -> length noise = length integers ->
  release integers' (follow integers integers' noise) = release integers noise.
Proof.
  unfold release, follow, plus, minus.
  induction integers as [|q integers IH]; destruct integers' as [|q' integers'], noise as [|nu noise];
    simpl; intros; try lia; try reflexivity. f_equal; [lia|]. apply IH; lia.
Qed.

Theorem follow_injective : forall integers integers' first second,
  length integers = length integers' -> length first = length integers -> length second = length integers ->
  follow integers integers' first = follow integers integers' second -> first = second.
Proof.
  unfold follow, plus, minus.
  induction integers as [|q integers IH];
    destruct integers' as [|q' integers'], first as [|a first], second as [|b second];
    simpl; intros; try lia; try reflexivity.
  injection H2 as head tail. f_equal; [lia|]. eapply IH; try eassumption; lia.
Qed.

Theorem laplace_cost : forall integers integers' noise,
  length integers = length integers' -> length noise = length integers ->
  size (follow integers integers' noise) - size noise <= size (minus integers integers').
Proof.
  unfold size, follow, plus, minus.
  induction integers as [|q integers IH]; destruct integers' as [|q' integers'], noise as [|nu noise];
    simpl; intros; try lia. specialize (IH integers' noise ltac:(lia) ltac:(lia)). lia.
Qed.

Theorem box_cost : forall integers integers' noise,
  length integers = length integers' -> length noise = length integers ->
  largest (follow integers integers' noise) - largest noise <= largest (minus integers integers').
Proof.
  unfold follow, plus, minus.
  induction integers as [|q integers IH]; destruct integers' as [|q' integers'], noise as [|nu noise];
    simpl; intros; try lia. specialize (IH integers' noise ltac:(lia) ltac:(lia)). lia.
Qed.

Lemma over_scale : forall (s : positive) a b, a <= b ->
  (inject_Z a / inject_Z (Zpos s) <= inject_Z b / inject_Z (Zpos s))%Q.
Proof.
  intros. apply Qmult_le_compat_r; [now rewrite <- Zle_Qle|apply Qinv_le_0_compat; rewrite <- (Zle_Qle 0); lia].
Qed.

Theorem laplace_private : forall K s integers integers' noise,
  length integers = length integers' -> length noise = length integers -> size (minus integers integers') <= K ->
  release integers' (follow integers integers' noise) = release integers noise
  /\ (inject_Z (size (follow integers integers' noise) - size noise) / inject_Z (Zpos s)
      <= inject_Z K / inject_Z (Zpos s))%Q.
Proof.
  intros K s integers integers' noise same width moved. split; [now apply vector_aligned|]. apply over_scale.
  assert (cost := laplace_cost integers integers' noise same width). lia.
Qed.

Theorem box_private : forall K s integers integers' noise,
  length integers = length integers' -> length noise = length integers -> largest (minus integers integers') <= K ->
  release integers' (follow integers integers' noise) = release integers noise
  /\ (inject_Z (largest (follow integers integers' noise) - largest noise) / inject_Z (Zpos s)
      <= inject_Z K / inject_Z (Zpos s))%Q.
Proof.
  intros K s integers integers' noise same width moved. split; [now apply vector_aligned|]. apply over_scale.
  assert (cost := box_cost integers integers' noise same width). lia.
Qed.
