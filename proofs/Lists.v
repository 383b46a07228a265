(* Sums, sizes and moves of lists of whole numbers: what the other files share. *)
From Coq Require Import ZArith List Lia.
Import ListNotations.
Open Scope Z_scope.

Fixpoint sum (numbers : list Z) : Z :=
  match numbers with [] => 0 | x :: rest => x + sum rest end.

(* The norms of the noise: L1, the largest entry, and the square of L2. *)
Definition size (numbers : list Z) : Z := sum (map Z.abs numbers).
Fixpoint largest (numbers : list Z) : Z :=
  match numbers with [] => 0 | x :: rest => Z.max (Z.abs x) (largest rest) end.
Definition squares (numbers : list Z) : Z := sum (map (fun x => x * x) numbers).

Fixpoint zip (f : Z -> Z -> Z) (first second : list Z) : list Z :=
  match first, second with
  | x :: first', y :: second' => f x y :: zip f first' second'
  | _, _ => []
  end.
Definition plus := zip Z.add.
Definition minus := zip Z.sub.

Lemma zip_length : forall f a b, length a = length b -> length (zip f a b) = length a.
Proof. induction a; destruct b; simpl; intros; try lia. rewrite IHa; lia. Qed.

Lemma size_nonneg : forall l, 0 <= size l.
Proof. unfold size. induction l; simpl; lia. Qed.

Lemma largest_nonneg : forall l, 0 <= largest l.
Proof. induction l; simpl; lia. Qed.

Lemma squares_nonneg : forall l, 0 <= squares l.
Proof. unfold squares. induction l; simpl; nia. Qed.
